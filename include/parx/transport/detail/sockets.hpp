// sockets: socket operations that the links and the endpoint share.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

struct socket_address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* data() noexcept { return reinterpret_cast<sockaddr*>(&storage); }

  /// A numeric IPv4 or IPv6 address. Throws errc::io for anything else.
  [[nodiscard]] static socket_address tcp(const std::string& address, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &raw) != 0) {
      throw_error(errc::io, "\"{}\" is not a numeric network address", address);
    }
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(raw, &::freeaddrinfo);
    socket_address result;
    std::memcpy(&result.storage, raw->ai_addr, raw->ai_addrlen);
    result.length = raw->ai_addrlen;
    return result;
  }
  /// An abstract Unix socket: its name is in no file system.
  [[nodiscard]] static socket_address abstract(std::string_view name) noexcept {
    socket_address result;
    auto& unix_address = reinterpret_cast<sockaddr_un&>(result.storage);
    unix_address.sun_family = AF_UNIX;
    const std::size_t length = std::min(name.size(), sizeof unix_address.sun_path - 1);
    std::memcpy(unix_address.sun_path + 1, name.data(), length);
    result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    return result;
  }
  [[nodiscard]] std::uint16_t port() const noexcept {
    return ntohs(storage.ss_family == AF_INET
                     ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                     : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
};

/// A non-blocking stream socket; invalid, with errno set, where none can be made.
[[nodiscard]] inline descriptor stream_socket(int family) noexcept {
  return descriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

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

/// The error of a connection attempt: 0 when it has succeeded, EINPROGRESS while it goes on.
[[nodiscard]] inline int connection_state(int socket, int patience_ms = 0) noexcept {
  pollfd polled{socket, POLLOUT, 0};
  if (::poll(&polled, 1, patience_ms) <= 0) return EINPROGRESS;
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure;
}

}  // namespace parx::detail
