// scatter: rank r receives block r of the root's vector.
//
// Collective. Any trivially copyable element type. Only the root's input is read (the others may
// pass an empty one). In place: the root's output is its block of the input. scatter: all blocks
// have the same length. scatter_v: block r has counts[r] elements; every rank passes all counts,
// because inner ranks of a tree forward others' blocks.
#pragma once

#include <span>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename In, typename Out>
[[nodiscard]] collective_arguments scatter_arguments(const process_group& group, const In& input,
                                                     Out& output, const rooted_options& options,
                                                     call_site site) {
  const call_check check(group, operation::scatter, site);
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  given.count = check.for_all_ranks(given.output);
  if (group.rank() == given.root) {
    check.require(given.input.count == given.count,
                  "the root's input must hold {} ranks x {} elements = {}, not {}", group.size(),
                  given.output.count, given.count, given.input.count);
    given.own_begin = given.output.count * check.own_rank();
  } else {
    given.input.data = nullptr;
  }
  return given;
}

template <typename In, typename Out>
[[nodiscard]] collective_arguments scatter_v_arguments(const process_group& group, const In& input,
                                                       Out& output,
                                                       std::span<const std::size_t> counts,
                                                       const rooted_options& options,
                                                       call_site site) {
  const call_check check(group, operation::scatter, site, "_v");
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  given.count = check.sum(counts, "counts", given.output);
  check.require(given.output.count == counts[check.own_rank()],
                "the output holds {} elements, but counts[{}] is {}", given.output.count,
                group.rank(), counts[check.own_rank()]);
  if (group.rank() == given.root) {
    check.require(given.input.count == given.count,
                  "the root's input must hold the sum of all counts, {} elements, not {}",
                  given.count, given.input.count);
    given.own_begin = check.begin_of_own(counts);
  } else {
    given.input.data = nullptr;
  }
  given.counts = counts;
  return given;
}

}  // namespace detail

/// Blocks until `output` holds this rank's block (on the root: also until all blocks have been
/// sent). Throws usage_error before any I/O, parx::error when communication fails (the group is
/// then closed).
template <typename In, typename Out>
void scatter(process_group& group, const In& input, Out&& output, rooted_options options = {},
             call_site site = call_site::current()) {
  detail::run(group, detail::scatter_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out>
[[nodiscard]] work async_scatter(process_group& group, In&& input, Out&& output,
                                 rooted_options options = {},
                                 call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::scatter_arguments(group, input, output, options, site));
}

/// As scatter; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void scatter_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
               rooted_options options = {}, call_site site = call_site::current()) {
  detail::run(group,
              detail::scatter_v_arguments(group, input, output, counts.view(), options, site));
}
template <typename In, typename Out>
[[nodiscard]] work async_scatter_v(process_group& group, In&& input, Out&& output,
                                   const block_counts& counts, rooted_options options = {},
                                   call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(
      group, detail::scatter_v_arguments(group, input, output, counts.view(), options, site));
}

}  // namespace parx
