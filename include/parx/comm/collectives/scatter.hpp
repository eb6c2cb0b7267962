// scatter: rank r receives block r of the root's vector.
//
// Collective. Any trivially copyable element type. Only the root's input is read (the others may
// pass an empty one). In place: the root's output is its block of the input. scatter: all blocks
// have the same length. scatter_v: block r has counts[r] elements; every rank passes all counts,
// because inner ranks of a tree forward others' blocks.
#pragma once

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/blocks.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Of scatter_v where there are counts.
template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments scatter_arguments(const process_group& group, const In& input,
                                                     Out& output, const Options& options,
                                                     call_site site,
                                                     const block_counts* counts = nullptr) {
  const call_check check(group, collective<operation::scatter>, site,
                         counts != nullptr ? "_v" : "");
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  fill_blocks(check, counts,
              {given.input, "the root's input must hold", given.output, "the output"}, given);
  return given;
}

}  // namespace detail

/// Blocks until `output` holds this rank's block (on the root: also until all blocks have been
/// sent). Throws usage_error before any I/O, parx::error when communication fails (the group is
/// then closed).
template <typename In, typename Out, typename Options = rooted_options>
void scatter(process_group& group, const In& input, Out&& output, Options options = {},
             call_site site = call_site::current()) {
  detail::run(group, detail::scatter_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out, typename Options = rooted_options>
[[nodiscard]] work async_scatter(process_group& group, In&& input, Out&& output,
                                 Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::scatter_arguments(group, input, output, options, site));
}

/// As scatter; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void scatter_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
               rooted_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::scatter_arguments(group, input, output, options, site, &counts));
}
template <typename In, typename Out>
[[nodiscard]] work async_scatter_v(process_group& group, In&& input, Out&& output,
                                   const block_counts& counts, rooted_options options = {},
                                   call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group,
                       detail::scatter_arguments(group, input, output, options, site, &counts));
}

}  // namespace parx
