// stream_options: the socket options of every TCP connection, of stores and of links.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <chrono>

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

}  // namespace parx::detail
