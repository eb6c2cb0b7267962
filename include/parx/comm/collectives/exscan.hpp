// exscan: rank r receives the reduction of the vectors of ranks 0 to r - 1 (MPI_Exscan).
//
// Collective: every rank calls it with the same count, dtype and options. The order of the ranks is
// kept. Rank 0's output is unchanged. The sum of each rank's number of elements gives the offset of
// its first element among those of all ranks.
#pragma once

#include <parx/comm/detail/issue/scan_arguments.hpp>

namespace parx::inline PARX_ABI {

/// Out of place. `options` are scan_options or a user_op. Blocks until `output` holds the result.
/// Throws usage_error before any I/O, parx::error when communication fails (the group is then
/// closed).
template <typename In, detail::second_buffer Out, typename Options = scan_options>
void exscan(process_group& group, const In& input, Out&& output, Options options = {},
            call_site site = call_site::current()) {
  detail::run(group, detail::scan_arguments(group, detail::collective<operation::exscan>, input,
                                            output, options, site));
}
/// In place. On rank 0 `data` is unchanged.
template <typename Data, detail::no_buffer Options = scan_options>
void exscan(process_group& group, Data&& data, Options options = {},
            call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::run(group, detail::scan_arguments(group, detail::collective<operation::exscan>, data,
                                            data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <typename In, detail::second_buffer Out, typename Options = scan_options>
[[nodiscard]] work async_exscan(process_group& group, In&& input, Out&& output,
                                Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::scan_arguments(group, detail::collective<operation::exscan>, input, output, kept,
                                  site);
  });
}
template <typename Data, detail::no_buffer Options = scan_options>
[[nodiscard]] work async_exscan(process_group& group, Data&& data, Options options = {},
                                call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::scan_arguments(group, detail::collective<operation::exscan>, data, data, kept,
                                  site);
  });
}

}  // namespace parx
