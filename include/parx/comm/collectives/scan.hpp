// scan: rank r ends with the reduction of the vectors of ranks 0 to r (MPI_Scan).
//
// Collective: every rank calls it with the same count, dtype and options. The order of the ranks is
// kept.
#pragma once

#include <parx/comm/detail/misuse.hpp>
#include <parx/comm/detail/scan_arguments.hpp>

namespace parx {

/// Out of place. `options` are scan_options or a user_op. Blocks until `output` holds the result.
/// Throws usage_error before any I/O, parx::error when communication fails (the group is then
/// closed).
template <movable_buffer In, mutable_movable_buffer Out, typename Options = scan_options>
requires detail::reduction_options_for<Options, scan_options, In>
void scan(process_group& group, const In& input, Out&& output, Options options = {},
          call_site site = call_site::current()) {
  detail::run(group, detail::scan_arguments(group, operation::scan, input, output, options, site));
}
/// In place.
template <mutable_movable_buffer Data, typename Options = scan_options>
requires detail::reduction_options_for<Options, scan_options, Data>
void scan(process_group& group, Data&& data, Options options = {},
          call_site site = call_site::current()) {
  detail::run(group, detail::scan_arguments(group, operation::scan, data, data, options, site));
}

/// The buffers are borrowed until the work is waited for.
template <movable_buffer In, mutable_movable_buffer Out, typename Options = scan_options>
requires detail::reduction_options_for<Options, scan_options, In>
[[nodiscard]] work async_scan(process_group& group, In&& input, Out&& output,
                              Options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<In, Out>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::scan_arguments(group, operation::scan, input, output, kept, site);
  });
}
template <mutable_movable_buffer Data, typename Options = scan_options>
requires detail::reduction_options_for<Options, scan_options, Data>
[[nodiscard]] work async_scan(process_group& group, Data&& data, Options options = {},
                              call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start_reduction(group, std::move(options), [&](const Options& kept) {
    return detail::scan_arguments(group, operation::scan, data, data, kept, site);
  });
}

/// For what they do not take: a compile-time error that says what to do.
template <typename Data, typename Options = scan_options>
  requires detail::no_reduction_in_place<Data, Options, scan_options>
void scan(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, scan_options>();
}
template <typename In, typename Out, typename Options = scan_options>
  requires detail::no_reduction_out_of_place<In, Out, Options, scan_options>
void scan(process_group&, const In&, Out&&, Options = {}, call_site = {}) {
  detail::explain_misuse<In, Out, Options, scan_options>();
}
template <typename Data, typename Options = scan_options>
  requires detail::no_reduction_in_place<Data, Options, scan_options>
[[nodiscard]] work async_scan(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, scan_options>();
  return {};
}
template <typename In, typename Out, typename Options = scan_options>
  requires detail::no_reduction_out_of_place<In, Out, Options, scan_options>
[[nodiscard]] work async_scan(process_group&, const In&, Out&&, Options = {}, call_site = {}) {
  detail::explain_misuse<In, Out, Options, scan_options>();
  return {};
}

}  // namespace parx
