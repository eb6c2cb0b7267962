// incoming_connections: the connections that peers have opened, until their links claim them.
//
// Listens for TCP and, where memory is shared, at an abstract Unix socket. A connection to the Unix
// socket is a wake_channel or passes memory. Such memory is mapped at once, so that an unclaimed
// arrival takes no descriptor. A connection is accepted after a hello that proves that its peer is
// a rank of this job; at the Unix socket the peer must also run as the same user. All others are
// closed and are no error. Those without a complete hello are newcomers (core/newcomers.hpp), at
// most `most_pending` at a time. When a group closes, its unclaimed arrivals are closed, and so are
// later ones. Threads: safe from any thread.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/core/error.hpp>
#include <parx/core/find.hpp>
#include <parx/core/job_key.hpp>
#include <parx/core/log.hpp>
#include <parx/core/newcomers.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/ended_groups.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/link_memory.hpp>
#include <parx/transport/detail/link_proof.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/sockets.hpp>

namespace parx::inline PARX_ABI::detail {

/// Identifies the link that a connection belongs to.
struct link_key {
  std::uint64_t group = 0;
  int peer = -1;  ///< in the group's numbering
  purpose what_for = purpose::collective;
  int stream = 0;  ///< index among a link's connections, or a shared area's id
  bool operator==(const link_key&) const = default;
};

/// In link_key::group: the connection is for all groups of two processes.
inline constexpr std::uint64_t all_groups = ~std::uint64_t{0};

/// A connection, or the memory that was passed over one; neither where none has arrived.
struct arrival {
  descriptor socket;
  shared_memory memory;
  mac proof{};  ///< with which the link answers a TCP connection's hello, in a job with a key

  [[nodiscard]] explicit operator bool() const noexcept {
    return socket.valid() || memory.data() != nullptr;
  }
};

class incoming_connections {
 public:
  /// Listens; connections are not accepted before accept_with(). Throws errc::io.
  [[gnu::cold]] incoming_connections(const std::string& address, const std::string& memory_name)
      : address_(socket_address::tcp(address, 0)), tcp_(stream_socket(address_.storage.ss_family)) {
    // A connection inherits the listener's congestion control before the peer's host is known.
    network_control_ = congestion_control_of(tcp_.get());
    if (network_control_.starts_with("bbr")) avoid_pacing(tcp_.get());
    // A connection without a hello is a probe (job::has_ended). Those of the ranks that wait while
    // this one computes would fill the backlog, which then would not answer those that open links.
    const int to_send_hello = 30;  // seconds
    ::setsockopt(tcp_.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &to_send_hello, sizeof to_send_hello);
    const bool listens = tcp_.valid() &&
                         ::bind(tcp_.get(), address_.data(), address_.length) == 0 &&
                         ::listen(tcp_.get(), SOMAXCONN) == 0 &&
                         ::getsockname(tcp_.get(), address_.data(), &address_.length) == 0;
    if (!listens) throw_error(errc::io, "cannot listen on {}: {}", address, errno_text(errno));
    if (memory_name.empty()) return;
    const auto name = socket_address::abstract(memory_name);
    memory_ = stream_socket(AF_UNIX);
    if (!memory_.valid() || ::bind(memory_.get(), name.data(), name.length) != 0 ||
        ::listen(memory_.get(), SOMAXCONN) != 0) {
      memory_.close();
    }
  }

  [[nodiscard]] std::uint16_t port() const noexcept { return address_.port(); }
  /// The kernel's default congestion control, for connections with other hosts.
  [[nodiscard]] const std::string& network_control() const noexcept { return network_control_; }
  [[nodiscard]] bool shares_memory() const noexcept { return memory_.valid(); }
  /// The descriptors that become readable when a peer connects; the second one may be -1.
  [[nodiscard]] std::pair<int, int> listeners() const noexcept {
    return {tcp_.get(), memory_.get()};
  }

  /// Sets what hellos are checked with: the key and the challenge that this rank has published, or
  /// the token where the job has no secret.
  void accept_with(std::string token, std::optional<job_key> key, std::string challenge) {
    const std::lock_guard lock(mutex_);
    token_ = std::move(token);
    key_ = std::move(key);
    challenge_ = std::move(challenge);
  }

  /// Accepts new connections, and returns the one for a link if it has arrived. Does not block.
  /// Throws errc::io where descriptors have run out.
  [[nodiscard, gnu::cold]] arrival claim(const link_key& key) {
    const std::lock_guard lock(mutex_);
    accept_from(tcp_.get());
    if (memory_.valid()) accept_from(memory_.get());
    std::erase_if(pending_, [this](connection& each) { return read_hello(each); });
    const auto found = find_arrived(key);
    if (found == arrived_.end()) return {};
    arrival taken = std::move(found->second);
    arrived_.erase(found);
    return taken;
  }

  /// Whether the process at the other end of a Unix connection runs as this process's user, by its
  /// user id when it started to listen or its present one.
  [[nodiscard]] bool is_of_this_user(int socket) const noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == user_ || peer.uid == ::geteuid());
  }

  /// A group has closed: closes its unclaimed arrivals, and those that come later.
  void forget(std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    if (ended_.has(group)) return;
    ended_.add(group);
    std::erase_if(arrived_, [group](const auto& each) {
      if (each.first.group == group) refuse(each.first, each.second);
      return each.first.group == group;
    });
  }

 private:
  using clock = std::chrono::steady_clock;
  /// Each is read from whenever a link is claimed.
  static constexpr std::size_t most_pending = 256;

  /// A connection whose hello is not complete.
  struct connection {
    descriptor socket;
    clock::time_point since;
    hello_bytes bytes{};  ///< of its hello
    std::size_t received = 0;
    descriptor memory{};       ///< passed over it
    bool lost_memory = false;  ///< this process had no descriptor for it
  };

  [[gnu::cold]] void accept_from(int listener) {
    for (;;) {
      if (pending_.size() >= most_pending && !make_room()) return;
      descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        const int why = errno;
        if (why != EMFILE && why != ENFILE) return;
        if (!is_awaited(listener)) return;  // accept4() fails so even if no connection waits
        if (pending_.empty()) throw_shortage(why);
        if (!make_room()) return;
        continue;
      }
      if (listener == memory_.get() && !is_of_this_user(socket.get())) continue;
      connection next{.socket = std::move(socket), .since = clock::now()};
      if (read_hello(next)) continue;  // usually it has arrived already
      pending_.push_back(std::move(next));
    }
  }
  /// Closes the oldest connection, unless it is so young that its hello may still arrive; the next
  /// one waits in the kernel meanwhile. Returns whether it was closed.
  bool make_room() {
    if (clock::now() - pending_.front().since < newcomers::time_when_short) return false;
    pending_.erase(pending_.begin());
    return true;
  }

  [[noreturn]] static void throw_shortage(int why) {
    throw_error(errc::io, "cannot accept another connection: {}", shortage_text(why));
  }
  /// Whether a connection waits to be accepted.
  [[nodiscard]] static bool is_awaited(int listener) noexcept {
    pollfd interest{listener, POLLIN, 0};
    return ::poll(&interest, 1, 0) > 0;
  }

  /// Reads more of a hello; true when the connection was accepted or is to be closed.
  [[gnu::cold]] bool read_hello(connection& each) {
    iovec part{each.bytes.data() + each.received, sizeof(link_hello) - each.received};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    // Not sizeof control: its padding has room for a second descriptor.
    message.msg_controllen = CMSG_LEN(sizeof(int));
    const auto got = ::recvmsg(each.socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (got > 0) {
      each.received += static_cast<std::size_t>(got);
      const cmsghdr* head = CMSG_FIRSTHDR(&message);
      const bool passes_memory =
          head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS;
      if (passes_memory) {
        int sent = -1;
        std::memcpy(&sent, CMSG_DATA(head), sizeof sent);
        each.memory = descriptor(sent);
      }
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        if (passes_memory) return true;  // more than one
        // The kernel drops the memory where this process has no descriptor left for it.
        each.lost_memory = true;
      }
    }
    if (each.received < sizeof(link_hello)) return clock::now() - each.since > newcomers::time;
    accept(each);
    return true;
  }

  [[gnu::cold]] void accept(connection& each) {
    const auto greeting = parse_hello(each.bytes);
    if (!greeting || !is_proven(*greeting)) {
      log(log_level::debug, "closed a connection that did not prove to be of this job");
      return;
    }
    if (each.lost_memory) throw_shortage(EMFILE);
    const link_key wants{greeting->group, greeting->from, greeting->what_for,
                         greeting->stream};
    arrival made;
    if (!each.memory.valid()) made.socket = std::move(each.socket);
    else made.memory = shared_memory(each.memory, shared_memory::size_of(each.memory));
    // A link is opened once: a second connection for it is refused.
    if (ended_.has(wants.group) || find_arrived(wants) != arrived_.end()) {
      return refuse(wants, made);
    }
    if (key_ && made.socket.valid() && is_tcp(made.socket.get())) {
      made.proof = proof_of_welcome(*key_, *greeting);
    }
    arrived_.emplace_back(wants, std::move(made));
  }

  [[nodiscard]] bool is_proven(const link_hello& greeting) {
    if (key_) {
      return equal_in_constant_time(greeting.proof, proof_of_hello(*key_, greeting, challenge_)) &&
             received_.take(greeting.rank, greeting.count);
    }
    return token_.size() == greeting.proof.size() &&
           std::equal(token_.begin(), token_.end(), job_key::view(greeting.proof).begin());
  }
  [[nodiscard]] static bool is_tcp(int socket) noexcept {
    int family = AF_UNSPEC;
    socklen_t size = sizeof family;
    return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family != AF_UNIX;
  }

  /// A connection is closed with its arrival. Of a link's memory the accepting side is marked as
  /// closed instead, for the rank that passed it.
  static void refuse(const link_key& wants, const arrival& refused) noexcept {
    if (wants.what_for == purpose::memory || refused.memory.size() < link_memory::rings_at) return;
    link_memory::at(refused.memory.data()).sides[1].closed.store(1, std::memory_order_release);
  }

  using arrived = std::pair<link_key, arrival>;
  [[nodiscard]] std::vector<arrived>::iterator find_arrived(const link_key& key) {
    return find_by(arrived_, &arrived::first, key);
  }

  uid_t user_ = ::geteuid();
  socket_address address_;
  descriptor tcp_;
  std::string network_control_;
  descriptor memory_;
  std::mutex mutex_;
  std::string token_;
  std::optional<job_key> key_;
  std::string challenge_;
  received_hellos received_;
  std::vector<connection> pending_;  ///< the oldest first
  std::vector<arrived> arrived_;     ///< not claimed yet
  ended_groups ended_;
};

}  // namespace parx::detail
