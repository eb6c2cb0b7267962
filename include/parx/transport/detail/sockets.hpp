// sockets: socket operations that the links and the endpoint share.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <string_view>

#include <parx/core/socket_address.hpp>

namespace parx::inline PARX_ABI::detail {

/// False where the kernel does not have this control or does not allow it to this user.
inline bool set_congestion_control(int socket, std::string_view name) noexcept {
  return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}
/// For a connection inside a host: replaces bbr as congestion control. To be called before
/// connect() or listen(), since a connection that bbr has begun to pace stays paced under another
/// control. Pacing takes a timer per segment, which doubles the CPU time per byte. reno is always
/// allowed.
inline void avoid_pacing(int socket) noexcept {
  if (!set_congestion_control(socket, "cubic")) set_congestion_control(socket, "reno");
}
[[nodiscard]] inline std::string congestion_control_of(int socket) {
  char name[16] = {};  // TCP_CA_NAME_MAX
  socklen_t size = sizeof name;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) != 0) return {};
  return std::string(name, ::strnlen(name, sizeof name));
}

}  // namespace parx::detail
