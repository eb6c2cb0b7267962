// tcp_link: a link over one TCP connection.
//
// The hot path calls the socket's non-blocking operations directly, on the thread that needs the
// progress. Opening does not block either: a connection that is on its way is looked at again.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <utility>

#include <parx/transport/detail/endpoint.hpp>
#include <parx/transport/detail/process_link.hpp>

namespace parx {

class tcp_link final : public detail::process_link {
 public:
  /// A link that waits for its peer to connect.
  tcp_link(detail::endpoint& shared, const detail::link_key& key, bool same_host)
      : shared_(shared), key_(key), same_host_(same_host) {}

  /// A link that connects to its peer as rank `from` of the group. Throws link_lost.
  tcp_link(detail::endpoint& shared, const detail::link_key& key, int from, const detail::peer_record& peer)
      : shared_(shared), key_(key), same_host_(peer.boot_id == shared.own().boot_id), from_(from) {
    if (detail::is_loopback(peer.address) && !same_host_) {
      throw link_lost(key.peer, fmt::format("it is on another host ({}) but offers the loopback address {}; set "
                                            "PARX_SOCKET_IFNAME there to the interface that faces the others",
                                            peer.host, peer.address));
    }
    address_ = fmt::format("{}:{}", peer.address, peer.port);
    const auto address = detail::socket_address::tcp(peer.address, peer.port);
    socket_ = detail::stream_socket(address.storage.ss_family);
    if (!socket_.valid()) {
      throw link_lost(key.peer, fmt::format("no socket can be made: {}; `ulimit -n` bounds their number",
                                            errno_text(errno)));
    }
    state_ = state::connecting;
    if (::connect(socket_.get(), address.data(), address.length) != 0 && errno != EINPROGRESS) refuse(errno);
    static_cast<void>(opened());
  }

  std::size_t try_send(const_bytes first, const_bytes second) override {
    if (!opened()) return 0;
    second.size = std::min(second.size, most_bytes);
    iovec parts[2] = {{const_cast<std::byte*>(first.data), first.size},
                      {const_cast<std::byte*>(second.data), second.size}};
    msghdr message{};
    message.msg_iov = first.size > 0 ? parts : parts + 1;
    message.msg_iovlen = (first.size > 0 ? 1u : 0u) + (second.size > 0 ? 1u : 0u);
    const auto sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw link_lost(key_.peer, reason(errno));
  }

  std::size_t try_receive(mutable_bytes first, mutable_bytes second) override {
    if (!opened()) return 0;
    iovec parts[2] = {{first.data, first.size}, {second.data, second.size}};
    msghdr message{};
    message.msg_iov = first.size > 0 ? parts : parts + 1;
    message.msg_iovlen = (first.size > 0 ? 1u : 0u) + (second.size > 0 ? 1u : 0u);
    const auto received = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (received > 0) {
      if (first.size + second.size > quick_ack_bytes) {
        // After small messages the kernel delays acknowledgements by 40 ms and more, and a stream whose
        // window is still small stands still meanwhile. The flag does not last, so it is set again.
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
      }
      return static_cast<std::size_t>(received);
    }
    if (received == 0) throw link_lost(key_.peer, "it closed the connection");
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw link_lost(key_.peer, reason(errno));
  }

  [[nodiscard]] detail::sleep_plan before_sleep(bool readable, bool writable) override {
    if (state_ == state::connecting) return {socket_.get(), POLLOUT, false};
    const int events = (readable ? POLLIN : 0) | (writable ? POLLOUT : 0);
    return {socket_.get(), static_cast<short>(events), false};
  }
  void after_sleep(short) override {}
  [[nodiscard]] bool open() const noexcept override { return state_ == state::open; }

  void close() noexcept override {
    if (socket_.valid()) ::shutdown(socket_.get(), SHUT_WR);
    socket_.close();
    state_ = state::closed;
  }

 private:
  enum class state { awaiting, connecting, open, closed };
  static constexpr std::size_t quick_ack_bytes = std::size_t{32} << 10;
  /// Sent by one call: large enough to make its cost small, and then the other direction has its turn.
  static constexpr std::size_t most_bytes = std::size_t{256} << 10;

  [[nodiscard]] bool opened() {
    switch (state_) {
      case state::open: return true;
      case state::closed: throw link_lost(key_.peer, "this rank closed the connection");
      case state::awaiting: {
        auto arrived = shared_.incoming().claim(key_);
        if (!arrived) return false;
        socket_ = std::move(arrived->socket);
        break;
      }
      case state::connecting: {
        const int failure = detail::connection_state(socket_.get());
        if (failure == EINPROGRESS) return false;
        if (failure != 0) refuse(failure);
        const auto greeting = shared_.hello(key_, from_);
        if (::send(socket_.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL) !=
            static_cast<ssize_t>(greeting.size())) {
          throw link_lost(key_.peer, fmt::format("it does not take a greeting: {}", errno_text(errno)));
        }
        break;
      }
    }
    detail::tune(socket_.get(), same_host_);
    state_ = state::open;
    return true;
  }
  [[noreturn]] void refuse(int number) const {
    throw link_lost(key_.peer, fmt::format("its address {} does not answer: {}", address_, errno_text(number)));
  }
  [[nodiscard]] static std::string reason(int number) {
    if (number == ECONNRESET || number == EPIPE) return "it closed the connection (reset)";
    if (number == ETIMEDOUT) return "nothing was heard from it for 30 s (host or network down?)";
    return errno_text(number);
  }

  detail::endpoint& shared_;
  detail::link_key key_;
  bool same_host_;
  int from_ = -1;
  std::string address_;
  descriptor socket_;
  state state_ = state::awaiting;
};

}  // namespace parx
