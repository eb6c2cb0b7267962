// doorbell: the one connection of two processes that share memory, for all their groups.
//
// A ring names the group whose sleeper it is for; whoever hears it, in whatever group, passes it
// on. The kernel ends the connection with either process, however that dies.
// Threads: safe from any thread.
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

class doorbell {
 public:
  /// Over a Unix stream socket that does not block.
  explicit doorbell(parx::descriptor socket) : socket_(std::move(socket)) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) pid_ = peer.pid;
  }

  /// Of the process at the other end; 0 where the kernel does not tell.
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// Becomes readable when it rings, or when the other process has ended.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// Whether listen() has found that the other process is gone.
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Where some 270 rings wait to be heard there is no room for another: its sleeper then sleeps
  /// until its nap ends.
  void ring(std::uint64_t group) noexcept {
    [[maybe_unused]] const auto rung =
        ::send(socket_.get(), &group, sizeof group, MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// Takes in what has rung, and calls rouse(group) for each.
  template <typename Rouse>
  void listen(Rouse rouse) {
    std::uint64_t groups[32];  // the kernel keeps rings whole
    for (;;) {
      const auto got = ::recv(socket_.get(), groups, sizeof groups, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        ended_.store(true, std::memory_order_release);
      }
      if (got <= 0) return;
      const auto rings = static_cast<std::size_t>(got) / sizeof groups[0];
      for (std::size_t i = 0; i < rings; ++i) rouse(groups[i]);
      if (static_cast<std::size_t>(got) < sizeof groups) return;
    }
  }

 private:
  parx::descriptor socket_;
  pid_t pid_ = 0;
  std::atomic<bool> ended_{false};
};

}  // namespace parx::detail
