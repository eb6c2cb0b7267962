// barrier: returns on no rank before all ranks have entered.
#pragma once

#include <chrono>

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

[[nodiscard]] inline collective_arguments barrier_arguments(std::chrono::milliseconds timeout,
                                                            call_site site) {
  collective_arguments given;
  given.algorithms = &algorithms_of<operation::barrier>;
  given.site = site;
  given.timeout = timeout;
  return given;
}

}  // namespace detail

/// Collective. Throws parx::error if communication fails or the timeout passes; the message then
/// names a missing rank.
inline void barrier(process_group& group, barrier_options options = {},
                    call_site site = call_site::current()) {
  detail::run(group, detail::barrier_arguments(options.timeout, site));
}
[[nodiscard]] inline work async_barrier(process_group& group, barrier_options options = {},
                                        call_site site = call_site::current()) {
  return detail::start(group, detail::barrier_arguments(options.timeout, site));
}

/// Collective. A barrier whose timeout error names all missing ranks, on every rank. Each call
/// writes an entry to the job's store: use it to find a rank that hangs, not in every step.
inline void monitored_barrier(process_group& group,
                              std::chrono::milliseconds timeout = group_timeout,
                              call_site site = call_site::current()) {
  detail::collective_arguments given = detail::barrier_arguments(timeout, site);
  given.names_absent_ranks = true;
  detail::run(group, given);
}

}  // namespace parx
