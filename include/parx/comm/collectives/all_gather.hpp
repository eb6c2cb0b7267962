// all_gather: every rank receives the vectors of all ranks, concatenated in rank order.
//
// Collective. Any trivially copyable element type. In place: the input is this rank's block of the
// output. all_gather: all vectors have the same length; the output has size() times as many
// elements. all_gather_v: rank r's vector has counts[r] elements; every rank passes all counts.
#pragma once

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/blocks.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Of all_gather_v where there are counts.
template <typename In, typename Out>
[[nodiscard]] collective_arguments all_gather_arguments(const process_group& group, const In& input,
                                                        Out& output,
                                                        const collective_options& options,
                                                        call_site site,
                                                        const block_counts* counts = nullptr) {
  const call_check check(group, collective<operation::all_gather>, site,
                         counts != nullptr ? "_v" : "");
  collective_arguments given = check.arguments<collective_options>(input, output, options);
  fill_blocks(check, counts,
              {given.output, "the output must have room for", given.input, "the input"}, given);
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
  detail::run(group, detail::all_gather_arguments(group, input, output, options, site, &counts));
}
template <typename In, typename Out>
[[nodiscard]] work async_all_gather_v(process_group& group, In&& input, Out&& output,
                                      const block_counts& counts, collective_options options = {},
                                      call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start(group,
                       detail::all_gather_arguments(group, input, output, options, site, &counts));
}

}  // namespace parx
