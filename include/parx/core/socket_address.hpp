// Network addresses: as the kernel takes them, as names, and as text. And the sockets for them.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

using address_list = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// The addresses of `host` for TCP; null, with the error of getaddrinfo(3) in `code`, where there
/// are none. Blocks as long as the system's resolver does, which takes no deadline.
[[nodiscard]] inline address_list find_addresses(const char* host, std::uint16_t port, int flags,
                                                 int& code) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  code = ::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  return {code == 0 ? found : nullptr, &::freeaddrinfo};
}

/// The numeric form of an address: "10.0.0.7", "fe80::1%eth0"; empty where it has none.
[[nodiscard]] inline std::string address_text(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST] = "";
  const int code = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text : "";
}

[[nodiscard]] inline bool is_loopback(std::string_view address) noexcept {
  return address.starts_with("127.") || address == "::1";
}

struct socket_address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* data() const noexcept {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
  [[nodiscard]] sockaddr* data() noexcept { return reinterpret_cast<sockaddr*>(&storage); }

  /// A numeric IPv4 or IPv6 address. Throws errc::io for anything else.
  [[nodiscard]] static socket_address tcp(const std::string& address, std::uint16_t port) {
    int code = 0;
    const address_list found = find_addresses(address.c_str(), port, AI_NUMERICHOST, code);
    if (!found) throw_error(errc::io, "\"{}\" is not a numeric network address", address);
    socket_address result;
    std::memcpy(&result.storage, found->ai_addr, found->ai_addrlen);
    result.length = found->ai_addrlen;
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
  /// The address at this end of a socket; all zero where there is none.
  [[nodiscard]] static socket_address of(int socket) noexcept {
    socket_address result;
    result.length = sizeof result.storage;
    return ::getsockname(socket, result.data(), &result.length) == 0 ? result : socket_address{};
  }
  /// Of a TCP address.
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

/// The errno with which a non-blocking connect() has failed; 0 where it has succeeded.
[[nodiscard]] inline int connection_error(int socket) noexcept {
  int failure = 0;
  socklen_t size = sizeof failure;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &size);
  return failure;
}

}  // namespace parx::detail
