// arrivals: the connections that peers have opened, until their links claim them.
//
// Listens for TCP and, where memory is shared, at an abstract Unix socket. A connection there is
// the doorbell of two processes, or brings memory: that is mapped at once, so that what nobody has
// claimed yet takes no descriptor. A connection counts only after a hello that proves that it is of
// this job, at the Unix socket only of the same user; nothing that others send is an error here. At
// most `most_strangers` may be half open, for five seconds each. What a group has not
// claimed when it closes is closed with it, and so is what comes for it later.
// Threads: safe from any thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include <parx/core/job_key.hpp>
#include <parx/core/log.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/link_memory.hpp>
#include <parx/transport/detail/link_proof.hpp>
#include <parx/transport/detail/shared_memory.hpp>
#include <parx/transport/detail/sockets.hpp>

namespace parx::inline PARX_ABI::detail {

/// Which link a connection belongs to.
struct link_key {
  std::uint64_t group = 0;
  int peer = -1;  ///< in the group's numbering
  purpose what_for = purpose::collective;
  int stream = 0;  ///< of the connections that are one link, or of the group's shared areas
  bool operator==(const link_key&) const = default;
};

/// In link_key::group: a connection of two processes, not of one group.
inline constexpr std::uint64_t all_groups = ~std::uint64_t{0};

/// A connection, or the memory that one has brought; neither where none has come.
struct arrival {
  descriptor socket;
  shared_memory memory;
  mac proof{};  ///< that this rank has answered a TCP connection's hello with, in a job with a key

  [[nodiscard]] explicit operator bool() const noexcept {
    return socket.valid() || memory.data() != nullptr;
  }
};

class arrivals {
 public:
  /// Nothing is taken in before a token is set. Throws errc::io where nothing can listen.
  arrivals(const std::string& address, const std::string& memory_name)
      : address_(socket_address::tcp(address, 0)), tcp_(stream_socket(address_.storage.ss_family)) {
    // A connection inherits the listener's congestion control, before it is known who connected.
    network_control_ = congestion_control_of(tcp_.get());
    if (network_control_.starts_with("bbr")) avoid_pacing(tcp_.get());
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
  /// What the kernel would have given to connections with other hosts.
  [[nodiscard]] const std::string& network_control() const noexcept { return network_control_; }
  [[nodiscard]] bool shares_memory() const noexcept { return memory_.valid(); }
  /// What becomes readable when a peer connects; the second one may be -1.
  [[nodiscard]] std::pair<int, int> listeners() const noexcept {
    return {tcp_.get(), memory_.get()};
  }

  /// How hellos are judged: by the key, with the challenge that this rank has published, or by the
  /// token where the job has no secret.
  void take_in(std::string token, std::optional<job_key> key, std::string challenge) {
    const std::lock_guard lock(mutex_);
    token_ = std::move(token);
    key_ = std::move(key);
    challenge_ = std::move(challenge);
  }

  /// Takes what has come for a link, once it is there. Does not block. Throws errc::io where
  /// descriptors have run out.
  [[nodiscard]] arrival claim(const link_key& key) {
    const std::lock_guard lock(mutex_);
    accept_from(tcp_.get());
    if (memory_.valid()) accept_from(memory_.get());
    std::erase_if(strangers_, [this](caller& each) { return heard(each); });
    const auto found = find_arrived(key);
    if (found == arrived_.end()) return {};
    arrival taken = std::move(found->second);
    arrived_.erase(found);
    return taken;
  }

  /// Whether the process that has connected to a Unix socket, or that listens at the one that this
  /// process has connected to, belongs to this one's user: as when it started to listen, or now.
  [[nodiscard]] bool is_of_this_user(int socket) const noexcept {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == user_ || peer.uid == ::geteuid());
  }

  /// Closes what nobody has claimed of a group that has ended here, now and when it comes later.
  void forget(std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    if (ended(group)) return;
    ended_[ended_count_++ % ended_.size()] = group;
    std::erase_if(arrived_, [group](const auto& each) {
      if (each.first.group == group) refuse(each.first, each.second);
      return each.first.group == group;
    });
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t most_strangers = 256;
  static constexpr std::chrono::seconds stranger_patience{5};
  static constexpr std::chrono::seconds hello_patience{1};  ///< where descriptors are scarce

  struct caller {
    descriptor socket;
    clock::time_point since;
    hello_bytes bytes{};  ///< of its hello
    std::size_t received = 0;
    descriptor memory{};  ///< that it has brought
    bool lost_memory = false;  ///< this process had no descriptor for it
  };

  void accept_from(int listener) {
    for (;;) {
      descriptor socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid()) {
        const int why = errno;
        if (why != EMFILE && why != ENFILE) return;
        if (!is_awaited(listener)) return;  // accept4() says so also where nobody is waiting
        if (strangers_.empty()) throw_shortage(why);
        // The oldest makes room, unless it may still be about to say that it is a rank of this job.
        if (clock::now() - strangers_.front().since < hello_patience) return;
        strangers_.erase(strangers_.begin());
        continue;
      }
      if (listener == memory_.get() && !is_of_this_user(socket.get())) continue;
      caller next{.socket = std::move(socket), .since = clock::now()};
      if (heard(next)) continue;  // usually its hello is there already
      if (strangers_.size() >= most_strangers) strangers_.erase(strangers_.begin());
      strangers_.push_back(std::move(next));
    }
  }

  [[noreturn]] static void throw_shortage(int why) {
    throw_error(errc::io, "cannot accept another connection: {}", shortage_text(why));
  }
  /// Whether a connection waits to be accepted.
  [[nodiscard]] static bool is_awaited(int listener) noexcept {
    pollfd interest{listener, POLLIN, 0};
    return ::poll(&interest, 1, 0) > 0;
  }

  /// Reads on; true when the connection needs no more attention, welcomed or not.
  bool heard(caller& each) {
    iovec part{each.bytes.data() + each.received, sizeof(link_hello) - each.received};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    // Not sizeof control, whose padding has room for a second descriptor.
    message.msg_controllen = CMSG_LEN(sizeof(int));
    const auto got = ::recvmsg(each.socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    if (got > 0) {
      each.received += static_cast<std::size_t>(got);
      const cmsghdr* head = CMSG_FIRSTHDR(&message);
      const bool brings =
          head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS;
      if (brings) {
        int sent = -1;
        std::memcpy(&sent, CMSG_DATA(head), sizeof sent);
        each.memory = descriptor(sent);
      }
      if ((message.msg_flags & MSG_CTRUNC) != 0) {
        if (brings) return true;  // more than one
        // The kernel passes no memory to a process that has no descriptor left for it.
        each.lost_memory = true;
      }
    }
    if (each.received < sizeof(link_hello)) return clock::now() - each.since > stranger_patience;
    welcome(each);
    return true;
  }

  void welcome(caller& each) {
    const auto greeting = parse_hello(each.bytes);
    if (!greeting || !is_proven(*greeting)) {
      log(log_level::debug, "closed a connection that did not prove to be of this job");
      return;
    }
    if (each.lost_memory) throw_shortage(EMFILE);
    const link_key wants{greeting->group, greeting->from, greeting->what_for,
                         greeting->stream};
    arrival came;
    if (!each.memory.valid()) came.socket = std::move(each.socket);
    else came.memory = shared_memory(each.memory, shared_memory::size_of(each.memory));
    if (ended(wants.group)) return refuse(wants, came);
    // The first one counts: a link is opened once.
    if (find_arrived(wants) != arrived_.end()) return refuse(wants, came);
    if (key_ && came.socket.valid() && is_tcp(came.socket.get())) {
      came.proof = proof_of_welcome(*key_, *greeting);
      // There is always room for it; where the peer has gone already, its link finds out.
      static_cast<void>(
          ::send(came.socket.get(), came.proof.data(), came.proof.size(), MSG_NOSIGNAL));
    }
    arrived_.emplace_back(wants, std::move(came));
  }

  [[nodiscard]] bool is_proven(const link_hello& greeting) {
    if (key_) {
      return equal_in_constant_time(greeting.proof, proof_of_hello(*key_, greeting, challenge_)) &&
             heard_.take(greeting.rank, greeting.count);
    }
    return token_.size() == greeting.proof.size() &&
           std::equal(token_.begin(), token_.end(), job_key::view(greeting.proof).begin());
  }
  [[nodiscard]] static bool is_tcp(int socket) noexcept {
    int family = AF_UNSPEC;
    socklen_t size = sizeof family;
    return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family != AF_UNIX;
  }

  /// A connection is closed with its arrival. The rank that passed a link's memory reads there that
  /// it was refused.
  static void refuse(const link_key& wants, const arrival& came) noexcept {
    if (wants.what_for == purpose::memory || came.memory.size() < link_memory::rings_at) return;
    refuse_link(came.memory.data());
  }

  using arrived = std::pair<link_key, arrival>;
  [[nodiscard]] std::vector<arrived>::iterator find_arrived(const link_key& key) {
    return std::find_if(arrived_.begin(), arrived_.end(),
                        [&](const arrived& each) { return each.first == key; });
  }

  [[nodiscard]] bool ended(std::uint64_t group) const noexcept {
    const auto known =
        ended_.begin() + static_cast<std::ptrdiff_t>(std::min(ended_count_, ended_.size()));
    return std::find(ended_.begin(), known, group) != known;
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
  heard_hellos heard_;
  std::vector<caller> strangers_;  ///< the longest waiting first
  std::vector<arrived> arrived_;   ///< not claimed yet
  // The latest groups that have ended: a peer is late by a few of them, not by hundreds.
  std::array<std::uint64_t, 512> ended_{};
  std::size_t ended_count_ = 0;
};

}  // namespace parx::detail
