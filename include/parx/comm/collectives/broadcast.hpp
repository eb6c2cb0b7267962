// broadcast: every rank ends with the root's vector.
//
// Collective. Any trivially copyable element type; every rank passes a buffer of the same size.
#pragma once

#include <parx/comm/detail/issue.hpp>
#include <parx/comm/detail/misuse.hpp>

namespace parx {

namespace detail {

template <mutable_movable_buffer Data>
[[nodiscard]] collective_arguments broadcast_arguments(const process_group& group, Data& data,
                                                       const rooted_options& options,
                                                       call_site site) {
  const call_check check(group, operation::broadcast, site);
  collective_arguments given = check.arguments();
  check.view(data, given.input);
  check.view(data, given.output);
  given.count = given.input.count;
  given.root = options.root;
  given.use = options.use;
  given.timeout = options.timeout;
  return given;
}

}  // namespace detail

/// Blocks until `data` holds the root's elements (on the root: until they have been handed over).
/// Throws usage_error before any I/O, parx::error when communication fails, which closes the group.
template <mutable_movable_buffer Data>
void broadcast(process_group& group, Data&& data, rooted_options options = {},
               call_site site = call_site::current()) {
  detail::run(group, detail::broadcast_arguments(group, data, options, site));
}

/// The buffer is borrowed until the work is waited for.
template <mutable_movable_buffer Data>
[[nodiscard]] work async_broadcast(process_group& group, Data&& data, rooted_options options = {},
                                   call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  return detail::start(group, detail::broadcast_arguments(group, data, options, site));
}

/// For what they do not take: a compile-time error that says what to do.
template <typename Data, typename Options = rooted_options>
  requires detail::no_move<Data, Data, Options, rooted_options>
void broadcast(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, rooted_options>();
}
template <typename Data, typename Options = rooted_options>
  requires detail::no_move<Data, Data, Options, rooted_options>
[[nodiscard]] work async_broadcast(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, rooted_options>();
  return {};
}

}  // namespace parx
