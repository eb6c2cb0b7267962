// poller: the sockets of a store's server in epoll. Level-triggered: readiness that is not used now
// is reported again.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

class poller {
 public:
  /// Throws errc::io.
  poller() {
    if (!epoll_.valid()) {
      throw_error(errc::io, "a store's server cannot start: {}", errno_text(errno));
    }
  }

  /// `change` is one of EPOLL_CTL_*. Events come with `id`. Throws errc::io.
  void watch(int change, const descriptor& what, std::uint32_t events, std::uint64_t id) const {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), change, what.get(), &wanted) != 0) {
      throw_error(errc::io, "the store's server cannot watch a socket: {}", errno_text(errno));
    }
  }

  /// Blocks for at most so long; -1: until something is ready. Returns the part of `room` in use.
  [[nodiscard]] std::span<epoll_event> wait(std::span<epoll_event> room,
                                            int milliseconds) const noexcept {
    const int count =
        ::epoll_wait(epoll_.get(), room.data(), static_cast<int>(room.size()), milliseconds);
    return room.first(static_cast<std::size_t>(std::max(count, 0)));
  }

 private:
  descriptor epoll_{::epoll_create1(EPOLL_CLOEXEC)};
};

}  // namespace parx::detail
