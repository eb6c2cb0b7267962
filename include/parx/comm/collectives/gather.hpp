// gather: the root receives the vectors of all ranks, concatenated in rank order.
//
// Collective. Any trivially copyable element type. Only the root's output is written (the others
// may pass an empty one). In place: the root's input is its block of the output. gather: all
// vectors have the same length. gather_v: rank r's vector has counts[r] elements; every rank passes
// all counts, because inner ranks of a tree forward others' blocks.
#pragma once

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/blocks.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Of gather_v where there are counts.
template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments gather_arguments(const process_group& group, const In& input,
                                                    Out& output, const Options& options,
                                                    call_site site,
                                                    const block_counts* counts = nullptr) {
  const call_check check(group, collective<operation::gather>, site, counts != nullptr ? "_v" : "");
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  fill_blocks(check, counts,
              {given.output, "the root's output must have room for", given.input, "the input"},
              given);
  return given;
}

}  // namespace detail

/// Blocks until the root's `output` is full; other ranks return when their part is done. Throws
/// usage_error before any I/O, parx::error when communication fails (the group is then closed).
template <typename In, typename Out, typename Options = rooted_options>
void gather(process_group& group, const In& input, Out&& output, Options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::gather_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out, typename Options = rooted_options>
[[nodiscard]] work async_gather(process_group& group, In&& input, Out&& output,
                                Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::gather_arguments(group, input, output, options, site));
}

/// As gather; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void gather_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
              rooted_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::gather_arguments(group, input, output, options, site, &counts));
}
template <typename In, typename Out>
[[nodiscard]] work async_gather_v(process_group& group, In&& input, Out&& output,
                                  const block_counts& counts, rooted_options options = {},
                                  call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group,
                       detail::gather_arguments(group, input, output, options, site, &counts));
}

}  // namespace parx
