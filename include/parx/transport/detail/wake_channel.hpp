// wake_channel: the one connection of two processes that share memory, for all their groups. Over
// it they wake each other's sleeping threads, and each notices when the other ends.
//
// A wake-up names the group that it is for. Any group's thread may receive it and then wakes that
// group (detail/sleeping_groups.hpp). The kernel closes the connection with either process, however
// that ends. Threads: safe from any thread.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

class wake_channel {
 public:
  /// Over a non-blocking Unix stream socket.
  explicit wake_channel(parx::descriptor socket) : socket_(std::move(socket)) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) pid_ = peer.pid;
  }

  /// Pid of the process at the other end; 0 where the kernel does not tell.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Becomes readable with a wake-up, or when the other process has ended.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Whether receive() has found that the other process is gone.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Wakes the other process's thread that sleeps for a group. With some 270 wake-ups unread the
  /// socket is full and this one is lost; the sleeper's timeout (nap_) makes up for it.
  void wake(std::uint64_t group) noexcept {
    [[maybe_unused]] const auto sent =
        ::send(socket_.get(), &group, sizeof group, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// Receives all wake-ups that have arrived and calls on_wake(group) for each.
  template <typename OnWake>
  void receive(OnWake on_wake) {
    std::uint64_t groups[32];  // each send() of 8 bytes arrives whole: it is one buffer of its own
    for (;;) {
      const auto got = ::recv(socket_.get(), groups, sizeof groups, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        ended_.store(true, std::memory_order_release);
      }
      if (got <= 0) return;
      const auto count = static_cast<std::size_t>(got) / sizeof groups[0];
      for (std::size_t i = 0; i < count; ++i) on_wake(groups[i]);
      if (static_cast<std::size_t>(got) < sizeof groups) return;
    }
  }

 private:
  parx::descriptor socket_;
  pid_t pid_ = 0;
  std::atomic<bool> ended_{false};
};

}  // namespace parx::detail
