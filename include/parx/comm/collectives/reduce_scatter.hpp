// reduce_scatter: the ranks' vectors are reduced, and rank r receives block r of the result.
//
// Collective. In place: the output is this rank's block of the input. reduce_scatter: all blocks
// have the same length; the input has size() times as many elements as the output.
// reduce_scatter_v: block r has counts[r] elements; every rank passes all counts.
#pragma once

#include <parx/comm/block_counts.hpp>
#include <parx/comm/detail/issue/blocks.hpp>
#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Of reduce_scatter_v where there are counts.
template <typename In, typename Out, typename Options>
[[nodiscard]] collective_arguments reduce_scatter_arguments(const process_group& group,
                                                            const In& input, Out& output,
                                                            const Options& options, call_site site,
                                                            const block_counts* counts = nullptr) {
  const call_check check(group, collective<operation::reduce_scatter>, site,
                         counts != nullptr ? "_v" : "");
  collective_arguments given = check.arguments<reduce_options>(input, output, options);
  fill_blocks(check, counts,
              {given.input, "the input must hold", given.output, "the output", "output elements"},
              given);
  return given;
}

}  // namespace detail

/// Blocks until `output` holds this rank's block. `options` are reduce_options or a user_op. Throws
/// usage_error before any I/O, parx::error when communication fails (the group is then closed).
template <typename In, typename Out, typename Options = reduce_options>
void reduce_scatter(process_group& group, const In& input, Out&& output, Options options = {},
                    call_site site = call_site::current()) {
  detail::run(group, detail::reduce_scatter_arguments(group, input, output, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, typename Out, typename Options = reduce_options>
[[nodiscard]] work async_reduce_scatter(process_group& group, In&& input, Out&& output,
                                        Options options = {},
                                        call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_scatter_arguments(group, input, output, kept, site);
  });
}

/// As reduce_scatter; `counts`, in elements and equal on all ranks, are only read during the call.
template <typename In, typename Out, typename Options = reduce_options>
void reduce_scatter_v(process_group& group, const In& input, Out&& output,
                      const block_counts& counts, Options options = {},
                      call_site site = call_site::current()) {
  detail::run(group,
              detail::reduce_scatter_arguments(group, input, output, options, site, &counts));
}
template <typename In, typename Out, typename Options = reduce_options>
[[nodiscard]] work async_reduce_scatter_v(process_group& group, In&& input, Out&& output,
                                          const block_counts& counts, Options options = {},
                                          call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::reduce_scatter_arguments(group, input, output, kept, site, &counts);
  });
}

}  // namespace parx
