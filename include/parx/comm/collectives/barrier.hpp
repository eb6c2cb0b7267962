// barrier: no rank leaves before every rank has entered.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

[[nodiscard]] inline collective_arguments barrier_arguments(const barrier_options& options,
                                                            call_site site) {
  collective_arguments given;
  given.what = operation::barrier;
  given.timeout = options.timeout;
  given.site = site;
  return given;
}

}  // namespace detail

/// Collective. Throws parx::error when communication fails or the deadline passes; the message names
/// the ranks that are missing.
inline void barrier(process_group& group, barrier_options options = {},
                    call_site site = call_site::current()) {
  detail::run(group, detail::barrier_arguments(options, site));
}
[[nodiscard]] inline work async_barrier(process_group& group, barrier_options options = {},
                                        call_site site = call_site::current()) {
  return detail::start(group, detail::barrier_arguments(options, site));
}

}  // namespace parx
