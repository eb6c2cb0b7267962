// reserved_port: a free TCP port, kept free for a process's children.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

/// Holds a port, chosen by the kernel, during its lifetime. Its socket is bound, never listens, and
/// has SO_REUSEADDR: the kernel gives the port to no other process, but a server that sets
/// SO_REUSEADDR (parx's store and PyTorch's do) can listen there. The port is never free in
/// between.
class reserved_port {
 public:
  reserved_port() : socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    // An IPv6 socket covers IPv4 as well; hosts without IPv6 have only the second kind.
    if (!socket_.valid() || !bind_v6()) {
      socket_ = descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (!socket_.valid() || !bind_v4()) {
        throw_error(errc::io, "cannot reserve a TCP port on this host: {}", errno_text(errno));
      }
    }
    // Set only now: bind() without reuse guarantees that nobody else had the port.
    const int yes = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  }

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  bool bind_v6() {
    const int no = 0;
    ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_any;
    if (!bind_any(address)) return false;
    number_ = ntohs(address.sin6_port);
    return true;
  }
  bool bind_v4() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (!bind_any(address)) return false;
    number_ = ntohs(address.sin_port);
    return true;
  }
  template <typename Address>
  bool bind_any(Address& address) {
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    return ::bind(socket_.get(), generic, size) == 0 &&
           ::getsockname(socket_.get(), generic, &size) == 0;
  }

  descriptor socket_;
  std::uint16_t number_ = 0;
};

}  // namespace parx::detail
