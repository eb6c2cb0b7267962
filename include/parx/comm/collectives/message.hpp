// send and recv: messages between two ranks of a group.
//
// A receive is matched by sender and tag, in the order of sending, and must name the count and dtype
// that were sent. As in MPI, a blocking send may have to wait for its receive; ranks that send to each
// other in a ring use async_send. Two ranks may both send up to 64 MiB before they receive, and a rank
// may send to itself.
#pragma once

#include <parx/comm/detail/issue.hpp>

namespace parx {

namespace detail {

inline void fill_message(const process_group& group, operation what, int peer, buffer_view memory,
                         const message_options& options, call_site site, call& request) {
  require(peer >= 0 && peer < group.size(), "{} at {}:{}: rank {} is not in group \"{}\" of {} ranks",
          name_of(what), site.file_name(), site.line, peer, group.name(), group.size());
  request.what = what;
  request.site = site;
  request.timeout = options.timeout;
  request.peer = peer;
  request.memory = static_cast<std::byte*>(memory.data);
  request.bytes = memory.bytes();
  request.header.type = static_cast<std::uint8_t>(memory.type);
  request.header.count = memory.count;
  request.header.root = options.tag;
}

/// A call keeps one pointer for both directions; a send only reads through it.
template <typename Data>
[[nodiscard]] buffer_view sendable(const Data& data) {
  const const_buffer_view view = const_movable_view_of(data);
  return {const_cast<void*>(view.data), view.count, view.type};
}

[[nodiscard]] inline work start_message(const process_group& group, operation what, int peer,
                                        buffer_view memory, const message_options& options,
                                        call_site site) {
  auto request = std::make_unique<call>();
  fill_message(group, what, peer, memory, options, site, *request);
  group.core()->submit(*request);
  return {group.core(), std::move(request)};
}

}  // namespace detail

/// Blocks until `data` may be changed again: it has been handed to the network, which does not mean
/// that it was received. Throws usage_error for a rank outside the group, parx::error when
/// communication fails (the group is then closed).
template <movable_buffer Data>
void send(process_group& group, const Data& data, int to, message_options options = {},
          call_site site = call_site::current()) {
  detail::call request;
  detail::fill_message(group, operation::send, to, detail::sendable(data), options, site, request);
  group.core()->run(request);
}

/// Blocks until the next message of rank `from` with this tag fills `data`.
template <mutable_movable_buffer Data>
void recv(process_group& group, Data&& data, int from, message_options options = {},
          call_site site = call_site::current()) {
  detail::call request;
  detail::fill_message(group, operation::recv, from, movable_view_of(data), options, site, request);
  group.core()->run(request);
}

/// The buffer is borrowed until the work is waited for.
template <movable_buffer Data>
[[nodiscard]] work async_send(process_group& group, const Data& data, int to,
                              message_options options = {}, call_site site = call_site::current()) {
  return detail::start_message(group, operation::send, to, detail::sendable(data), options, site);
}
template <mutable_movable_buffer Data>
[[nodiscard]] work async_recv(process_group& group, Data&& data, int from,
                              message_options options = {}, call_site site = call_site::current()) {
  return detail::start_message(group, operation::recv, from, movable_view_of(data), options, site);
}

}  // namespace parx
