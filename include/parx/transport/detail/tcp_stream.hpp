// tcp_stream: one TCP connection to a peer, from its opening to its end.
//
// The hot path calls the socket's non-blocking operations directly, on the calling thread. Opening
// does not block either: the state of a pending connection is polled by opened(). In a job with a
// secret the connecting side accepts no data before its peer's proof. Where the job's key encrypts,
// TLS starts after that proof, so the first bytes wait until the peer has opened its end, too.
//
// A rank sends its last bytes and leaves: the kernel goes on to send them, unless something arrives
// for the closed socket or lies unread in it. Then it resets the connection, and what it had not
// sent is lost. So the accepting side sends its proof only before its first bytes: to a peer that
// only sends, never.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <parx/core/formatted.hpp>
#include <parx/core/stream_options.hpp>
#include <parx/core/tls.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/endpoint.hpp>
#include <parx/transport/detail/process_link.hpp>

namespace parx::inline PARX_ABI::detail {

class tcp_stream {
 public:
  /// A stream that the peer, which is `rank` in the job, connects.
  [[gnu::cold]] tcp_stream(endpoint& shared, const link_key& key, int rank, bool same_host)
      : shared_(&shared), key_(key), rank_(rank), same_host_(same_host) {}

  /// A stream that connects, as rank `from` of the group, to the peer that is `rank` in the job.
  /// Throws link_lost, and parx::error where no socket can be made.
  [[gnu::cold]] tcp_stream(endpoint& shared, const link_key& key, int from, int rank,
                           const peer_record& peer)
      : shared_(&shared), key_(key), rank_(rank), same_host_(peer.boot_id == shared.own().boot_id) {
    if (is_loopback(peer.address) && !same_host_) {
      throw link_lost(key.peer, formatted("it is on another host ({}) but offers the loopback "
                                          "address {}; set PARX_SOCKET_IFNAME there to the "
                                          "interface that faces the others",
                                          peer.host, peer.address));
    }
    address_ = with_port(peer.address, peer.port);
    const auto address = socket_address::tcp(peer.address, peer.port);
    socket_ = stream_socket(address.storage.ss_family);
    if (!socket_.valid()) {
      throw_error(errc::io, "no socket can be made for a connection to rank {}: {}", key.peer,
                  shortage_text(errno));
    }
    greeting_ = shared.hello(key, from, peer);
    expected_ = shared.welcome_to(greeting_);
    state_ = state::connecting;
    if (same_host_) avoid_pacing(socket_.get());
    // Before connect(): a host that does not answer the first packet is given up as soon as one
    // that falls silent later. By itself the kernel goes on for two minutes.
    set_stream_options(socket_.get());
    if (::connect(socket_.get(), address.data(), address.length) != 0 && errno != EINPROGRESS) {
      throw_no_answer(errno);
    }
    static_cast<void>(opened());
  }

  /// Continues to open the stream; true once bytes can be moved. Throws link_lost.
  [[nodiscard]] bool opened() {
    if (state_ == state::open) return true;
    return finish_opening();
  }
  [[nodiscard]] bool is_open() const noexcept { return state_ == state::open; }
  /// Whether the peer has closed its side and all its bytes were received.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// The stream must be open. Returns the bytes moved, 0 when none can be. Throws link_lost. With
  /// `more_follows` the kernel may hold back a packet that is not full (MSG_MORE).
  std::size_t send(std::span<iovec> parts, bool more_follows = false) {
    if (expected_ && shared_->encrypts() && !is_welcome()) return 0;
    if (own_proof_ && !has_sent_proof()) return 0;
    const auto sent = put(parts, MSG_NOSIGNAL | MSG_DONTWAIT | (more_follows ? MSG_MORE : 0));
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw lost(errno);
  }
  /// The same; also 0 when the stream has ended. `wanted` is the size of all parts.
  std::size_t receive(std::span<iovec> parts, std::size_t wanted) {
    if (expected_ && !is_welcome()) return 0;
    const auto received = take(parts);
    if (received > 0) {
      if (wanted > quick_ack_bytes) {
        // After small messages the kernel delays acknowledgements by 40 ms and more, which stalls
        // a stream whose window is small. The flag is not permanent (tcp(7)): set it every time.
        const int on = 1;
        ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
      }
      return static_cast<std::size_t>(received);
    }
    if (received == 0) {
      ended_ = true;
      return 0;
    }
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw lost(errno);
  }

  /// For process_link::before_sleep while the stream is being opened: appends what to poll. True
  /// where the peer has to connect first, so that there is nothing to poll.
  [[nodiscard]] bool awaits_peer(std::vector<pollfd>& polled) const {
    if (state_ == state::connecting) polled.push_back({socket_.get(), POLLOUT, 0});
    return state_ == state::awaiting;
  }

  /// The stream must be open. The events to poll for in order to receive, to send, or both.
  [[nodiscard]] short events(bool to_receive, bool to_send) const noexcept {
    const int wanted = (to_receive ? POLLIN : 0) | (to_send ? POLLOUT : 0);
    if (tls_) return tls_->events(static_cast<short>(wanted));
    const bool waits = to_send && expected_ && shared_->encrypts();
    return static_cast<short>((to_receive || waits ? POLLIN : 0) |
                              (to_send && !waits ? POLLOUT : 0));
  }
  /// Whether TLS may hold bytes that were read from the socket already, which poll does not report.
  [[nodiscard]] bool may_hold_bytes() const noexcept { return tls_ && tls_->may_hold_bytes(); }

  /// After a sleep in which nothing has moved: the next call of opened() throws if the peer's host
  /// has fallen silent. Returns false then.
  bool note_silence() noexcept {
    if (state_ == state::open &&
        has_fallen_silent(socket_.get(), shared_->options().longest_silence)) {
      state_ = state::silent;
    }
    return state_ != state::silent;
  }

  /// The stream must be open. send() takes nothing while this many bytes are unsent in the kernel.
  void limit_unsent(int bytes) noexcept {
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes, sizeof bytes);
  }

  void close() noexcept {
    tls_.reset();
    if (state_ == state::open) {
      ::shutdown(socket_.get(), SHUT_WR);
      discard_unread();
    }
    socket_.close();
    state_ = state::closed;
  }

 private:
  enum class state { awaiting, connecting, open, silent, closed };
  static constexpr std::size_t quick_ack_bytes = std::size_t{32} << 10;
  /// Up to this size the parts are copied into one buffer. Measured: sending a header and four
  /// bytes takes the kernel 300 ns as two parts and 240 ns as one.
  static constexpr std::size_t most_copied = std::size_t{2} << 10;

  [[nodiscard]] static std::size_t size_of_all(std::span<const iovec> parts) noexcept {
    std::size_t size = 0;
    for (const iovec& each : parts) size += each.iov_len;
    return size;
  }
  [[nodiscard]] ssize_t put(std::span<iovec> parts, int flags) noexcept {
    if (tls_) return tls_->send(parts);
    const std::size_t size = size_of_all(parts);
    if (parts.size() == 1) return ::send(socket_.get(), parts[0].iov_base, size, flags);
    if (size <= most_copied) {
      std::byte whole[most_copied];
      std::byte* end = whole;
      for (const iovec& each : parts) {
        std::memcpy(end, each.iov_base, each.iov_len);
        end += each.iov_len;
      }
      return ::send(socket_.get(), whole, size, flags);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::sendmsg(socket_.get(), &message, flags);
  }
  [[nodiscard]] ssize_t take(std::span<iovec> parts) noexcept {
    if (tls_) return tls_->receive(parts);
    const std::size_t size = size_of_all(parts);
    if (parts.size() == 1) return ::recv(socket_.get(), parts[0].iov_base, size, MSG_DONTWAIT);
    if (size <= most_copied) {
      std::byte whole[most_copied];
      const auto received = ::recv(socket_.get(), whole, size, MSG_DONTWAIT);
      const std::byte* from = whole;
      for (auto left = static_cast<std::size_t>(std::max<ssize_t>(received, 0));
           const iovec& each : parts) {
        const std::size_t part = std::min(left, each.iov_len);
        if (part > 0) std::memcpy(each.iov_base, from, part);
        from += part;
        left -= part;
      }
      return received;
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
  }

  /// Sends the own proof, which the peer awaits before this side's first bytes; false where the
  /// kernel takes nothing now. Throws link_lost.
  [[nodiscard]] bool has_sent_proof() {
    // The kernel has room for it in a socket that nothing was sent over.
    const auto sent = ::send(socket_.get(), own_proof_->data(), own_proof_->size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT | (shared_->encrypts() ? 0 : MSG_MORE));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) throw lost(errno);
    if (sent < 0) return false;
    own_proof_.reset();
    return true;
  }
  /// Drops what the peer has sent for calls that this rank never made.
  void discard_unread() noexcept {
    static constexpr std::size_t most = std::size_t{64} << 20;  // a peer may go on to send
    for (std::size_t dropped = 0; dropped < most;) {
      // TCP drops them in the kernel (tcp(7), MSG_TRUNC).
      const auto got =
          ::recv(socket_.get(), nullptr, std::size_t{1} << 20, MSG_DONTWAIT | MSG_TRUNC);
      if (got <= 0) return;
      dropped += static_cast<std::size_t>(got);
    }
  }

  /// Receives the peer's proof; true once it is complete and correct. Throws link_lost for a wrong
  /// one.
  [[nodiscard, gnu::cold]] bool is_welcome() {
    const auto got = ::recv(socket_.get(), proof_.data() + proof_size_, proof_.size() - proof_size_,
                            MSG_DONTWAIT);
    if (got == 0) ended_ = true;
    if (got < 0 && errno != EAGAIN && errno != EINTR) throw lost(errno);
    if (got <= 0) return false;
    proof_size_ += static_cast<std::size_t>(got);
    if (proof_size_ < proof_.size()) return false;
    if (!equal_in_constant_time(proof_, *expected_)) {
      throw link_lost(key_.peer, formatted("what answers at its address {} does not know this "
                                           "job's secret",
                                           address_));
    }
    if (shared_->encrypts()) encrypt(tls_side::client, *expected_);
    expected_.reset();
    return true;
  }
  /// The key is bound to this connection by the accepting rank's proof.
  void encrypt(tls_side side, const mac& proof) {
    tls_.emplace(socket_.get(), side, shared_->tls_key(proof));
  }

  [[nodiscard, gnu::cold]] bool finish_opening() {
    switch (state_) {
      case state::open:
        return true;
      case state::closed:
        throw link_lost(key_.peer, "this rank closed the connection");
      case state::silent:
        throw link_lost(key_.peer, silence_text(shared_->options().longest_silence));
      case state::awaiting: {
        auto arrived = shared_->incoming().claim(key_);
        if (!arrived) {
          // No connection that could tell: what job::has_ended() has found must do.
          const auto silence = shared_->options().longest_silence;
          if (shared_->job()->silence_of(rank_) < silence) return false;
          throw link_lost(key_.peer, silence_text(silence));
        }
        socket_ = std::move(arrived.socket);
        set_stream_options(socket_.get());
        if (shared_->has_key()) own_proof_ = arrived.proof;
        // The peer's first bytes wait for it.
        if (shared_->encrypts() && !has_sent_proof()) throw lost(EAGAIN);
        if (shared_->encrypts()) encrypt(tls_side::server, arrived.proof);
        if (!same_host_) {
          set_congestion_control(socket_.get(), shared_->incoming().network_control());
        }
        break;
      }
      case state::connecting: {
        const int failure = connection_state(socket_.get());
        if (failure == EINPROGRESS) return false;
        if (failure != 0) throw_no_answer(failure);
        if (::send(socket_.get(), &greeting_, sizeof greeting_, MSG_NOSIGNAL) !=
            static_cast<ssize_t>(sizeof greeting_)) {
          throw link_lost(key_.peer,
                          formatted("it does not accept the hello: {}", errno_text(errno)));
        }
        break;
      }
    }
    bear_closed_window(socket_.get());
    state_ = state::open;
    return true;
  }
  [[noreturn]] void throw_no_answer(int number) const {
    // Its host answers that nothing listens there.
    const bool ended = number == ECONNREFUSED;
    if (ended) shared_->job()->report_ended(rank_);
    throw link_lost(key_.peer,
                    formatted("its address {} does not answer: {}", address_, errno_text(number)),
                    ended ? link_end::closed : link_end::broken);
  }
  /// The loss that a system call has reported by errno.
  [[nodiscard, gnu::cold]] link_lost lost(int number) const {
    const bool reset = number == ECONNRESET || number == EPIPE;
    return {key_.peer, reason(number), reset ? link_end::closed : link_end::broken};
  }
  [[nodiscard]] std::string reason(int number) const {
    if (number == EPROTO && tls_) return tls_->reason();
    if (number == ECONNRESET || number == EPIPE) return "it closed the connection (reset)";
    if (number == ETIMEDOUT) return silence_text(longest_silence);
    return errno_text(number);
  }

  [[nodiscard]] static std::string silence_text(std::chrono::milliseconds silence) {
    return formatted("nothing was heard from it for {} s (host or network down?)",
                     std::chrono::floor<std::chrono::seconds>(silence).count());
  }

  endpoint* shared_;
  link_key key_;
  int rank_;  ///< the peer's in the job
  bool same_host_;
  link_hello greeting_;          ///< of a stream that connects
  std::optional<mac> expected_;  ///< the peer's proof, until it has arrived
  mac proof_{};                  ///< the part of it that has arrived
  std::size_t proof_size_ = 0;
  std::optional<mac> own_proof_;  ///< of a stream that the peer has connected, until it is sent
  std::string address_;
  parx::descriptor socket_;
  std::optional<tls_session> tls_;
  state state_ = state::awaiting;
  bool ended_ = false;
};

}  // namespace parx::detail
