// arrivals: the connections that peers have opened, until their links claim them.
//
// Listens for TCP and, where memory is shared, at an abstract Unix socket. A connection there is
// the doorbell of two processes, or brings memory: that is mapped at once, so that what nobody has
// claimed yet takes no descriptor. A connection counts only after its hello with the job's token;
// at most `most_strangers` others may be half open, for five seconds each. What a group has not
// claimed when it closes is closed with it, and so is what comes for it later.
// Threads: safe from any thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>

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
#include <parx/core/log.hpp>
#include <parx/transport/detail/descriptor_limit.hpp>
#include <parx/transport/detail/frame.hpp>
#include <parx/transport/detail/link_memory.hpp>
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

  void set_token(std::string token) {
    const std::lock_guard lock(mutex_);
    token_ = std::move(token);
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
    message.msg_controllen = sizeof control;
    const auto got = ::recvmsg(each.socket.get(), &message, MSG_CMSG_CLOEXEC);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return true;
    // The kernel passes no memory to a process that has no descriptor left for it.
    if (got > 0 && (message.msg_flags & MSG_CTRUNC) != 0) throw_shortage(EMFILE);
    if (got > 0) {
      each.received += static_cast<std::size_t>(got);
      const cmsghdr* head = CMSG_FIRSTHDR(&message);
      if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
        int sent = -1;
        std::memcpy(&sent, CMSG_DATA(head), sizeof sent);
        each.memory = descriptor(sent);
      }
    }
    if (each.received < sizeof(link_hello)) return clock::now() - each.since > stranger_patience;
    welcome(each);
    return true;
  }

  void welcome(caller& each) {
    const auto greeting = parse_hello(each.bytes);
    const bool known = greeting && !token_.empty() && token_.size() <= greeting->token.size() &&
                       std::equal(token_.begin(), token_.end(), greeting->token.begin());
    if (!known) {
      log(log_level::debug, "closed a connection that did not show this job's token");
      return;
    }
    const link_key wants{greeting->group, greeting->from, greeting->what_for,
                         greeting->stream};
    arrival came;
    if (!each.memory.valid()) came.socket = std::move(each.socket);
    else came.memory = shared_memory(each.memory, shared_memory::size_of(each.memory));
    if (ended(wants.group)) return refuse(wants, came);
    const auto earlier = find_arrived(wants);
    if (earlier == arrived_.end()) arrived_.emplace_back(wants, std::move(came));
    else earlier->second = std::move(came);
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

  socket_address address_;
  descriptor tcp_;
  std::string network_control_;
  descriptor memory_;
  std::mutex mutex_;
  std::string token_;
  std::vector<caller> strangers_;  ///< the longest waiting first
  std::vector<arrived> arrived_;   ///< not claimed yet
  // The latest groups that have ended: a peer is late by a few of them, not by hundreds.
  std::array<std::uint64_t, 512> ended_{};
  std::size_t ended_count_ = 0;
};

}  // namespace parx::detail
