// Opening the listening socket of a store's server.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/store/detail/connect.hpp>
#include <parx/store/detail/port_owner.hpp>

namespace parx::inline PARX_ABI::detail {

/// The port that a socket is bound to; 0 where it is not bound.
[[nodiscard]] inline std::uint16_t bound_port(int socket) noexcept {
  return socket_address::of(socket).port();
}

/// A socket that listens at `address`. Not valid, with the errno in `why`, where that fails.
[[nodiscard]] inline descriptor listen_at(const addrinfo& address, int& why) noexcept {
  descriptor socket = stream_socket(address.ai_family);
  const auto set = [&](int level, int name, int value) {
    ::setsockopt(socket.get(), level, name, &value, sizeof value);
  };
  if (!socket.valid()) {
    why = errno;
    return {};
  }
  // A restarted job need not wait until old connections have left TIME_WAIT.
  set(SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.ai_family == AF_INET6) set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
      ::listen(socket.get(), SOMAXCONN) == 0) {
    return socket;
  }
  why = errno;
  return {};
}

[[noreturn, gnu::cold]] inline void throw_port_in_use(std::uint16_t port) {
  const auto owner = port_owner(port);
  if (owner.pid == ::getpid() && owner.socket.listens) {
    throw_usage(
        "a store cannot listen on port {}: this process listens there already. Has it "
        "called parx::init() or run() before? Call it once, and pass its world on",
        port);
  }
  throw_error(errc::io, "a store cannot listen on port {}: {}", port, in_use_text(owner));
}

/// The address to listen at for clients that connect to `host`: its one address, if that belongs to
/// this host and is not loopback; `host` itself, if that is a loopback address or "localhost". Else
/// all addresses (""), for instance where /etc/hosts maps this host's name to 127.0.1.1.
[[nodiscard, gnu::cold]] inline std::string narrowest_address(const std::string& host) {
  std::string reason;
  const address_list found = resolve(host, 0, reason);
  std::string only;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    const std::string text = address_text(a->ai_addr, a->ai_addrlen);
    if (!only.empty() && text != only) return {};
    only = text;
  }
  if (is_loopback(only)) {
    return host == only || host == "localhost" ? host : std::string();
  }
  int unused = 0;
  return found != nullptr && listen_at(*found, unused).valid() ? only : std::string();
}

/// Listens on `address` (a name or number; empty: all addresses, IPv6 and IPv4 on one socket) and
/// `port` (0: a free one). Throws parx::error(io), which names the process that has the port if it
/// can be found; usage_error where that is this process.
[[nodiscard, gnu::cold]] inline descriptor listen_on(const std::string& address,
                                                     std::uint16_t port) {
  const char* const node = address.empty() ? nullptr : address.c_str();
  int code = 0;
  const address_list addresses = find_addresses(node, port, AI_PASSIVE, code);
  if (!addresses) {
    throw_error(errc::io,
                "a store cannot listen on \"{}\": the name cannot be resolved: {}. Give an "
                "address of this host, or none for all of them.",
                address, ::gai_strerror(code));
  }
  int last_error = 0;
  // IPv6 first: with V6ONLY off, [::] takes IPv4 connections too.
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (a->ai_family != family) continue;
      if (descriptor socket = listen_at(*a, last_error); socket.valid()) return socket;
      if (last_error == EADDRINUSE) throw_port_in_use(port);
    }
  }
  throw_error(errc::io,
              "a store cannot listen on \"{}\" port {}: {}. Give an address of this host, or "
              "none for all of them.",
              address, port, errno_text(last_error));
}

}  // namespace parx::detail
