// send and recv: messages between two ranks of a group.
//
// A receive is matched by sender and tag, in the order of sending, and must name the count and
// dtype that were sent; recv_any_shape accepts any. As in MPI, a blocking send may have to wait for
// its receive; ranks that send to each other in a ring use async_send or a batch. A rank may send
// to itself.
//
// What is buffered, so that a send ends before its receive:
//  - Nothing, until the link is open. Both ranks open their end of it by their first message call
//    with each other or by warm_up(). A rank in a collective does not, so a first send to a rank
//    that is in a barrier may wait until its timeout. (The higher rank connects, so a small one
//    to a lower rank does not wait, unless TCP is encrypted.)
//  - From then on what fits into the link, whatever the receiver does: up to 8 KiB in shared
//    memory, and over TCP what the sockets hold.
//  - While the receiver is in any call of the group, a collective too, or has asynchronous
//    operations pending: messages of up to 64 MiB in all, or one longer one, which it keeps until
//    they are received.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <parx/comm/detail/issue/issue.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

inline void fill_payload(const elements& memory, const axis_extents& extents, call& request) {
  request.memory = static_cast<std::byte*>(memory.data);
  request.bytes = memory.bytes();
  // Structs are sent as bytes, so that one side may be a buffer of bytes.
  const bool structs = memory.type == call_header::user_type;
  request.header.type = structs ? static_cast<std::uint8_t>(dtype::uint8) : memory.type;
  request.header.count = structs ? memory.bytes() : memory.count;
  if (!extents.given()) return;
  request.extents = extents;
  request.header.sizes = static_cast<std::uint32_t>(extents.axes()) + 1;
}

/// Fails to compile, with an explanation, if `Data` is not what a message takes.
template <operation What, typename Data>
void fill_unchecked_message(const process_group& group, int peer, Data&& data,
                            const message_options& options, call_site site, call& request) {
  using written = std::conditional_t<What == operation::send, nothing_written, Data>;
  if constexpr (takes<message_options, Data, written, message_options>()) {
    elements seen;
    const call_check check(group, What, site);
    check.view(data, seen);
    check.fill_message(peer, options, request);
    check.require(!options.extents.given() || What == operation::send,
                  "only a send says what its extents are; recv_any_shape gets them");
    check.require(!options.extents.given() || options.extents.are_of(seen.count),
                  "the extents {} are not those of {} elements", to_string(options.extents),
                  seen.count);
    fill_payload(seen, options.extents, request);
  }
}

template <operation What, typename Data>
void fill_message(const process_group& group, int peer, Data&& data, const message_options& options,
                  call_site site, call& request) {
  const char* const role = What == operation::send ? "receiving rank" : "sending rank";
  call_check(group, What, site).is_rank(peer, role);
  fill_unchecked_message<What>(group, peer, data, options, site, request);
}

}  // namespace detail

/// Blocks until `data` may be changed again: it has been passed to the network, but may not have
/// been received. May wait for the receive, see the top of this file. Throws usage_error for a rank
/// outside the group, parx::error when communication fails (the group is then closed).
template <typename Data>
void send(process_group& group, const Data& data, int to, message_options options = {},
          call_site site = call_site::current()) {
  detail::call request;
  detail::fill_message<operation::send>(group, to, data, options, site, request);
  detail::run(group, request);
}

/// Blocks until the next message from rank `from` with this tag is in `data`.
template <typename Data>
void recv(process_group& group, Data&& data, int from, message_options options = {},
          call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::call request;
  detail::fill_message<operation::recv>(group, from, data, options, site, request);
  detail::run(group, request);
}

/// Blocks until a message from any rank with this tag is in `data`, and returns that rank. Messages
/// of one sender are received in the order of sending; between senders there is no order. Opens a
/// link to every rank. Fails when all other ranks have ended.
template <typename Data>
[[nodiscard]] int recv_any(process_group& group, Data&& data, message_options options = {},
                           call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  detail::call request;
  detail::fill_unchecked_message<operation::recv>(group, detail::any_source, data, options, site,
                                                  request);
  detail::run(group, request);
  return request.peer;
}

/// The buffer is borrowed until the work is waited for.
template <typename Data>
[[nodiscard]] work async_send(process_group& group, Data&& data, int to,
                              message_options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_message<operation::send>(group, to, data, options, site, *request);
  return detail::start(group, std::move(request));
}
template <typename Data>
[[nodiscard]] work async_recv(process_group& group, Data&& data, int from,
                              message_options options = {}, call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_message<operation::recv>(group, from, data, options, site, *request);
  return detail::start(group, std::move(request));
}

/// After wait(), work::source_rank() is the sender. Of several pending ones, the one issued first
/// receives the first message.
template <typename Data>
[[nodiscard]] work async_recv_any(process_group& group, Data&& data, message_options options = {},
                                  call_site site = call_site::current()) {
  detail::explain_temporary<Data>();
  auto request = std::make_unique<detail::call>();
  detail::fill_unchecked_message<operation::recv>(group, detail::any_source, data, options, site,
                                                  *request);
  return detail::start(group, std::move(request));
}

}  // namespace parx
