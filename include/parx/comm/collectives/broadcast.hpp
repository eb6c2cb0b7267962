// broadcast: every rank receives the root's vector.
//
// Collective. Any trivially copyable element type; every rank passes a buffer of the same size, or
// a variable that is a number.
#pragma once

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Data, typename Options>
[[nodiscard]] collective_arguments broadcast_arguments(const process_group& group, Data& data,
                                                       const Options& options, call_site site) {
  const call_check check(group, collective<operation::broadcast>, site);
  collective_arguments given = check.arguments<rooted_options>(data, data, options);
  given.count = given.input.count;
  return given;
}

}  // namespace detail

/// Blocks until `data` holds the root's elements (on the root: until they have been sent).
/// Throws usage_error before any I/O, parx::error when communication fails, which closes the group.
template <typename Data, typename Options = rooted_options>
void broadcast(process_group& group, Data&& data, Options options = {},
               call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::run(group, detail::broadcast_arguments(group, data, options, site));
}

/// The buffer is borrowed until the work is waited for.
template <typename Data, typename Options = rooted_options>
[[nodiscard]] work async_broadcast(process_group& group, Data&& data, Options options = {},
                                   call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start(group, detail::broadcast_arguments(group, data, options, site));
}

}  // namespace parx
