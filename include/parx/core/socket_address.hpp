// Network addresses: as the kernel takes them, as names, and as text. And the sockets for them.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::detail {

using address_list = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// This host's loopback address: 127.0.0.1, or ::1 where only that exists.
[[nodiscard]] inline std::string loopback_address();

/// The addresses of `host` for TCP; null, with the error of getaddrinfo(3) in `code`, where there
/// are none. Blocks as long as the system's resolver does, which takes no deadline. "localhost" is
/// loopback_address(), whatever /etc/hosts has of it (RFC 6761, 6.3).
[[nodiscard]] inline address_list find_addresses(const char* host, std::uint16_t port, int flags,
                                                 int& code) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  std::string loopback;
  if (host != nullptr && std::string_view(host) == "localhost") {
    loopback = loopback_address();
    host = loopback.c_str();
  }
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

struct host_and_port {
  std::string host;  ///< a name or an address, without brackets
  std::optional<std::uint16_t> port = std::nullopt;
};

/// Reads "node1", "node1:29500", "::1", "[::1]" or "[::1]:29500". Several colons without brackets
/// are an IPv6 address. nullopt where brackets or port are wrong.
[[nodiscard]] inline std::optional<host_and_port> split_address(std::string_view text) {
  std::string_view rest;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == text.npos) return std::nullopt;
    rest = text.substr(end + 1);
    text = text.substr(1, end - 1);
  } else if (const auto colon = text.find(':'); colon != text.npos && colon == text.rfind(':')) {
    rest = text.substr(colon);
    text = text.substr(0, colon);
  }
  if (text.empty()) return std::nullopt;
  if (rest.empty()) return host_and_port{std::string(text)};
  const auto port = parse_number<std::uint16_t>(rest.substr(1));
  if (rest.front() != ':' || !port || *port == 0) return std::nullopt;
  return host_and_port{std::string(text), port};
}

/// "[::1]" as "::1"; any other text as it is.
[[nodiscard]] inline std::string without_brackets(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

/// "node1:29500", "[::1]:29500"
[[nodiscard]] inline std::string with_port(std::string_view host, std::uint16_t port) {
  return host.find(':') == host.npos ? formatted("{}:{}", host, port)
                                     : formatted("[{}]:{}", host, port);
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

/// The error of a connection attempt: 0 when it has succeeded, EINPROGRESS while it goes on.
[[nodiscard]] inline int connection_state(int socket, int patience_ms = 0) noexcept {
  pollfd polled{socket, POLLOUT, 0};
  if (::poll(&polled, 1, patience_ms) <= 0) return EINPROGRESS;
  return connection_error(socket);
}

/// Connects and resets the connection: 0 where somebody listens at the address, ECONNREFUSED where
/// the host says that nobody does, EINPROGRESS where it has not answered in time, else another
/// errno.
[[nodiscard]] inline int probe_address(const sockaddr* address, socklen_t length,
                                       int patience_ms) noexcept {
  const descriptor probe = stream_socket(address->sa_family);
  if (!probe.valid()) return errno;
  // A reset leaves nothing in the backlog of a listener that awaits data (TCP_DEFER_ACCEPT).
  const linger at_once{1, 0};
  ::setsockopt(probe.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  if (::connect(probe.get(), address, length) == 0) return 0;
  return errno == EINPROGRESS ? connection_state(probe.get(), patience_ms) : errno;
}

inline std::string loopback_address() {
  for (const char* const each : {"127.0.0.1", "::1"}) {
    const socket_address address = socket_address::tcp(each, 0);
    const descriptor probe = stream_socket(address.storage.ss_family);
    if (probe.valid() && ::bind(probe.get(), address.data(), address.length) == 0) return each;
  }
  return "127.0.0.1";
}

}  // namespace parx::detail
