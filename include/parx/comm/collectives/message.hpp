// send and recv: messages between two ranks of a group.
//
// A receive is matched by sender and tag, in the order of sending, and must name the count and
// dtype that were sent. As in MPI, a blocking send may have to wait for its receive; ranks that
// send to each other in a ring use async_send or a batch. Two ranks may both send up to 64 MiB
// before they receive, and a rank may send to itself.
#pragma once

#include <memory>
#include <utility>

#include <parx/comm/detail/issue.hpp>
#include <parx/comm/detail/misuse.hpp>

namespace parx {

namespace detail {

inline void fill_message(operation what, int peer, const elements& memory,
                         const message_options& options, call_site site, call& request) {
  request.what = what;
  request.site = site;
  request.timeout = options.timeout;
  request.peer = peer;
  request.memory = static_cast<std::byte*>(memory.data);
  request.bytes = memory.bytes();
  // Structs travel as bytes, so that one side may be a buffer of bytes.
  const bool structs = memory.type == call_header::user_type;
  request.header.type = structs ? static_cast<std::uint8_t>(dtype::uint8) : memory.type;
  request.header.count = structs ? memory.bytes() : memory.count;
  request.header.root = options.tag;
}

template <typename Data>
void fill_receive_from_any(const process_group& group, Data&& data, const message_options& options,
                           call_site site, call& request) {
  const call_check check(group, operation::recv, site);
  elements seen;
  check.view(data, seen);
  fill_message(operation::recv, any_source, seen, options, site, request);
}

template <typename Data>
void fill_message(const process_group& group, operation what, int peer, Data&& data,
                  const message_options& options, call_site site, call& request) {
  const call_check check(group, what, site);
  check.is_rank(peer, what == operation::send ? "receiving rank" : "sending rank");
  elements seen;
  check.view(data, seen);
  fill_message(what, peer, seen, options, site, request);
}

}  // namespace detail

/// Blocks until `data` may be changed again: it has been handed to the network, which does not mean
/// that it was received. Throws usage_error for a rank outside the group, parx::error when
/// communication fails (the group is then closed).
template <movable_buffer Data>
void send(process_group& group, const Data& data, int to, message_options options = {},
          call_site site = call_site::current()) {
  detail::call request;
  detail::fill_message(group, operation::send, to, data, options, site, request);
  group.core()->run(request);
}

/// Blocks until the next message of rank `from` with this tag fills `data`.
template <mutable_movable_buffer Data>
void recv(process_group& group, Data&& data, int from, message_options options = {},
          call_site site = call_site::current()) {
  detail::call request;
  detail::fill_message(group, operation::recv, from, data, options, site, request);
  group.core()->run(request);
}

/// Blocks until a message of any rank with this tag fills `data`, and returns that rank. Messages
/// of one sender are taken in the order of sending; between senders there is no order. It opens a
/// link to every rank. Fails when all other ranks have ended.
template <mutable_movable_buffer Data>
[[nodiscard]] int recv_any(process_group& group, Data&& data, message_options options = {},
                           call_site site = call_site::current()) {
  detail::call request;
  detail::fill_receive_from_any(group, data, options, site, request);
  group.core()->run(request);
  return request.peer;
}

/// The buffer is borrowed until the work is waited for.
template <movable_buffer Data>
[[nodiscard]] work async_send(process_group& group, Data&& data, int to,
                              message_options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_message(group, operation::send, to, data, options, site, *request);
  group.core()->submit(*request);
  return {group.core(), std::move(request)};
}
template <mutable_movable_buffer Data>
[[nodiscard]] work async_recv(process_group& group, Data&& data, int from,
                              message_options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_message(group, operation::recv, from, data, options, site, *request);
  group.core()->submit(*request);
  return {group.core(), std::move(request)};
}

/// After wait(), work::source_rank() is the sender. Of several that wait at a time, the one issued
/// first takes the first message.
template <mutable_movable_buffer Data>
[[nodiscard]] work async_recv_any(process_group& group, Data&& data, message_options options = {},
                                  call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_receive_from_any(group, data, options, site, *request);
  group.core()->submit(*request);
  return {group.core(), std::move(request)};
}

/// For what they do not take: a compile-time error that says what to do.
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, detail::nothing_written, Options, message_options>
void send(process_group&, const Data&, int, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, detail::nothing_written, Options, message_options>();
}
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, Data, Options, message_options>
void recv(process_group&, Data&&, int, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, message_options>();
}
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, detail::nothing_written, Options, message_options>
[[nodiscard]] work async_send(process_group&, const Data&, int, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, detail::nothing_written, Options, message_options>();
  return {};
}
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, Data, Options, message_options>
[[nodiscard]] work async_recv(process_group&, Data&&, int, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, message_options>();
  return {};
}
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, Data, Options, message_options>
[[nodiscard]] int recv_any(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, message_options>();
  return 0;
}
template <typename Data, typename Options = message_options>
  requires detail::no_move<Data, Data, Options, message_options>
[[nodiscard]] work async_recv_any(process_group&, Data&&, Options = {}, call_site = {}) {
  detail::explain_misuse<Data, Data, Options, message_options>();
  return {};
}

}  // namespace parx
