// all_gather: every rank receives the vectors of all ranks, concatenated in rank order.
//
// Collective. Any trivially copyable element type. In place: the input is this rank's block of the
// output. all_gather: all vectors have the same length; the output has size() times as many
// elements. all_gather_v: rank r's vector has counts[r] elements; every rank passes all counts.
#pragma once

#include <span>

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename In, typename Out>
[[nodiscard]] collective_arguments all_gather_arguments(const process_group& group, const In& input,
                                                        Out& output,
                                                        const collective_options& options,
                                                        call_site site) {
  const call_check check(group, operation::all_gather, site);
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  given.count = check.for_all_ranks(given.input);
  check.require(given.output.count == given.count,
                "the output must have room for {} ranks x {} elements = {}, not {}", group.size(),
                given.input.count, given.count, given.output.count);
  given.own_begin = given.input.count * check.own_rank();
  return given;
}

template <typename In, typename Out>
[[nodiscard]] collective_arguments all_gather_v_arguments(const process_group& group,
                                                          const In& input, Out& output,
                                                          std::span<const std::size_t> counts,
                                                          const collective_options& options,
                                                          call_site site) {
  const call_check check(group, operation::all_gather, site, "_v");
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  given.count = check.sum(counts, "counts", given.output);
  check.require(given.output.count == given.count,
                "the output must have room for the sum of all counts, {} elements, not {}",
                given.count, given.output.count);
  check.require(given.input.count == counts[check.own_rank()],
                "the input holds {} elements, but counts[{}] is {}", given.input.count,
                group.rank(), counts[check.own_rank()]);
  given.counts = counts;
  given.own_begin = check.begin_of_own(counts);
  return given;
}

}  // namespace detail

/// Blocks until `output` is full. Throws usage_error before any I/O, parx::error when communication
/// fails (the group is then closed).
template <typename In, typename Out>
void all_gather(process_group& group, const In& input, Out&& output,
                collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group, detail::all_gather_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out>
[[nodiscard]] work async_all_gather(process_group& group, In&& input, Out&& output,
                                    collective_options options = {},
                                    call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group, detail::all_gather_arguments(group, input, output, options, site));
}

/// As all_gather; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out>
void all_gather_v(process_group& group, const In& input, Out&& output, const block_counts& counts,
                  collective_options options = {}, call_site site = call_site::current()) {
  detail::run(group,
              detail::all_gather_v_arguments(group, input, output, counts.view(), options, site));
}
template <typename In, typename Out>
[[nodiscard]] work async_all_gather_v(process_group& group, In&& input, Out&& output,
                                      const block_counts& counts, collective_options options = {},
                                      call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(
      group, detail::all_gather_v_arguments(group, input, output, counts.view(), options, site));
}

}  // namespace parx
