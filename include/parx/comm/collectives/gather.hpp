// gather: the root receives the vectors of all ranks, concatenated in rank order.
//
// Collective. Any trivially copyable element type. Only the root's output is written (the others
// may pass an empty one). In place: the root's input is its block of the output. gather: all
// vectors have the same length. gather_v: rank r's vector has counts[r] elements; every rank passes
// all counts, because inner ranks of a tree forward others' blocks.
#pragma once

#include <span>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename In, typename Out>
[[nodiscard]] collective_arguments gather_arguments(const process_group& group, const In& input,
                                                    Out& output, const rooted_options& options,
                                                    call_site site) {
  const call_check check(group, operation::gather, site);
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  given.count = check.for_all_ranks(given.input);
  if (group.rank() == given.root) {
    check.require(given.output.count == given.count,
                  "the root's output must have room for {} ranks x {} elements = {}, not {}",
                  group.size(), given.input.count, given.count, given.output.count);
    given.own_begin = given.input.count * check.own_rank();
  } else {
    given.output.data = nullptr;
  }
  return given;
}

template <typename In, typename Out>
[[nodiscard]] collective_arguments gather_v_arguments(const process_group& group, const In& input,
                                                      Out& output,
                                                      std::span<const std::size_t> counts,
                                                      const rooted_options& options,
                                                      call_site site) {
  const call_check check(group, operation::gather, site, "_v");
  collective_arguments given = check.arguments<rooted_options>(input, output, options);
  given.count = check.sum(counts, "counts", given.output);
  check.require(given.input.count == counts[check.own_rank()],
                "the input holds {} elements, but counts[{}] is {}", given.input.count,
                group.rank(), counts[check.own_rank()]);
  if (group.rank() == given.root) {
    check.require(given.output.count == given.count,
                  "the root's output must have room for the sum of all counts, {} elements, not {}",
                  given.count, given.output.count);
    given.own_begin = check.begin_of_own(counts);
  } else {
    given.output.data = nullptr;
  }
  given.counts = counts;
  return given;
}

}  // namespace detail

/// Blocks until the root's `output` is full; other ranks return when their part is done. Throws
/// usage_error before any I/O, parx::error when communication fails (the group is then closed).
template <typename In, typename Out>
void gather(process_group& group, const In& input, Out&& output, rooted_options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::gather_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out>
[[nodiscard]] work async_gather(process_group& group, In&& input, Out&& output,
                                rooted_options options = {},
                                call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::gather_arguments(group, input, output, options, site));
}

/// As gather; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void gather_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
              rooted_options options = {}, call_site site = call_site::current()) {
  detail::run(group,
              detail::gather_v_arguments(group, input, output, counts.view(), options, site));
}
template <typename In, typename Out>
[[nodiscard]] work async_gather_v(process_group& group, In&& input, Out&& output,
                                  const block_counts& counts, rooted_options options = {},
                                  call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(
      group, detail::gather_v_arguments(group, input, output, counts.view(), options, site));
}

}  // namespace parx
