// newcomers: the connections at a door of a job (the store's server, the coordinator of the nodes,
// the links of a rank) that have not yet shown that they belong to the job.
//
// Anybody may connect, so they are limited, by the same rules at each door. There are at most so
// many at a time. Where those are reached or descriptors are scarce, a newcomer that is older than
// `time_when_short` makes room for the next connection; a younger one may still be about to speak,
// so the next connection waits in the kernel meanwhile. Where the protocol lets the connecting side
// speak first, at once, a newcomer has `time` in any case. `newcomers` knows their ages and does no
// I/O; accept_waiting() is the loop at the door. One thread.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

class newcomers {
 public:
  using id = std::uint64_t;  ///< in the order of arrival, none twice
  using time_point = deadline::clock::time_point;

  static constexpr std::chrono::milliseconds time{5'000};
  static constexpr std::chrono::milliseconds time_when_short{1'000};
  /// How long a door that can take no connection waits until it tries again.
  static constexpr std::chrono::milliseconds pause{100};

  explicit newcomers(std::size_t most = std::numeric_limits<std::size_t>::max()) : most_(most) {}

  void add(id which, time_point now) { since_.emplace(which, now); }
  /// It has shown that it belongs to the job, or is gone.
  void remove(id which) { since_.erase(which); }

  [[nodiscard]] bool are_many() const noexcept { return since_.size() >= most_; }
  /// Those that are older than `limit`, the oldest first.
  [[nodiscard]] std::vector<id> older_than(std::chrono::milliseconds limit, time_point now) const {
    std::vector<id> found;
    for (const auto& [which, since] : since_) {
      if (now - since < limit) break;
      found.push_back(which);
    }
    return found;
  }
  /// When the oldest one is older than `limit`.
  [[nodiscard]] std::optional<time_point> next_end(std::chrono::milliseconds limit) const {
    if (since_.empty()) return std::nullopt;
    return since_.begin()->second + limit;
  }

 private:
  std::size_t most_;
  std::map<id, time_point> since_;
};

/// Whether the free descriptors are down to the reserve for the program that a door is a part of.
/// The kernel always allocates the lowest free number. `any` is an open descriptor.
[[nodiscard]] inline bool descriptors_are_scarce(int any) noexcept {
  constexpr rlim_t most_reserved = 1024;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t reserve = std::min<rlim_t>(limit.rlim_cur / 8, most_reserved);
  const descriptor next(::fcntl(any, F_DUPFD_CLOEXEC, 0));
  return !next.valid() || static_cast<rlim_t>(next.get()) >= limit.rlim_cur - reserve;
}

/// Why accept_waiting() has returned.
struct accepting {
  enum class state {
    goes_on,   ///< there may be more, later
    is_short,  ///< nothing makes room at the moment, for `reason`, an errno
    is_over,   ///< the listener is broken, as `reason` says
  };
  state now = state::goes_on;
  int reason = 0;
};

/// Accepts the connections that wait at a non-blocking listener, some at a time, so that others are
/// served in between. `take` gets the descriptor of each; `make_room` closes newcomers and returns
/// whether there were any to close.
template <typename Take, typename MakeRoom>
[[nodiscard, gnu::cold]] accepting accept_waiting(int listener, const newcomers& known, Take take,
                                                  MakeRoom make_room) {
  using state = accepting::state;
  constexpr int at_once = 64;
  for (int i = 0; i < at_once; ++i) {
    if ((known.are_many() || descriptors_are_scarce(listener)) && !make_room()) {
      return {state::is_short, EMFILE};
    }
    descriptor next(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (next.valid()) {
      take(std::move(next));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      const int why = errno;
      if (!make_room()) return {state::is_short, why};
    } else if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK) {
      return {state::is_over, errno};
    }
    // Other errors concern one pending connection (accept(2), "Error handling").
  }
  return {};
}

}  // namespace parx::detail
