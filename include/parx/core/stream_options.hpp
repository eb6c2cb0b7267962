// stream_options: the socket options of every TCP connection, of stores and of links.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// A peer whose host lost power sends no FIN. A connection ends after this long without an answer:
/// keepalive notices on idle ones, the user timeout on those with unacknowledged bytes.
inline constexpr std::chrono::seconds longest_silence{24};
inline constexpr std::chrono::seconds idle_before_probes{8};
inline constexpr std::chrono::seconds time_between_probes{4};
inline constexpr int most_probes = 4;
static_assert(idle_before_probes + most_probes * time_between_probes == longest_silence);

/// Small messages leave at once, and a silent peer is noticed.
inline void set_stream_options(int socket) noexcept {
  const auto set = [socket](int level, int name, int value) {
    ::setsockopt(socket, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(idle_before_probes.count()));
  set(IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(time_between_probes.count()));
  set(IPPROTO_TCP, TCP_KEEPCNT, most_probes);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::chrono::milliseconds(longest_silence).count()));
}

/// For an open connection whose peer may compute for longer than that before it reads: the user
/// timeout also runs while the peer's window is closed, though its host answers (tcp(7)). From then
/// on has_fallen_silent() must be asked. It holds for bytes that are still unsent when the process
/// ends, too.
inline void bear_closed_window(int socket) noexcept {
  const int none = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

/// Whether nothing was heard for `limit` from a host that the kernel has asked meanwhile, by
/// sending bytes again or by probing a closed window. The kernel waits twice as long each time, for
/// up to two minutes, so until the next time silence tells nothing; timers may be late by a part of
/// that.
[[nodiscard]] inline bool is_silent(const tcp_info& now, std::chrono::milliseconds limit) noexcept {
  static constexpr std::chrono::microseconds longest_gap = std::chrono::minutes(2);
  if (now.tcpi_unacked == 0 && now.tcpi_probes == 0) return false;
  auto gap = std::chrono::microseconds(now.tcpi_rto);  // of what was sent again, already doubled
  if (now.tcpi_unacked == 0) gap *= std::int64_t{1} << std::min<int>(now.tcpi_backoff, 20);
  // Data that acknowledges nothing new does not count as an acknowledgement.
  const std::chrono::milliseconds since(std::min(now.tcpi_last_ack_recv, now.tcpi_last_data_recv));
  return since >= limit && 2 * since > 3 * std::min(gap, longest_gap);
}
[[nodiscard]] inline bool has_fallen_silent(int socket, std::chrono::milliseconds limit) noexcept {
  tcp_info now{};
  socklen_t size = sizeof now;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &now, &size) == 0 && is_silent(now, limit);
}

}  // namespace parx::detail
