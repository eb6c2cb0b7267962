// reserved_port: a free TCP port, kept free for a process's children.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include <parx/core/deadline.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI::detail {

/// Holds a port during its lifetime. Its socket is bound, never listens, and has SO_REUSEADDR: the
/// kernel gives the port to no other process, but a server that sets SO_REUSEADDR (parx's store and
/// PyTorch's do) can listen there. The port is never free in between.
///
/// The kernel chooses the port. It gives none that a connection in TIME-WAIT had, with SO_REUSEADDR
/// neither, so after many thousands of connections in a minute it may have none left. Then ports
/// below those that it chooses from are tried.
class reserved_port {
 public:
  reserved_port() {
    static constexpr std::chrono::seconds patience{5};
    const deadline limit = deadline::after(patience);
    while (!takes(0) && !takes(port_of_no_connection())) {
      if (errno != EADDRINUSE) {
        throw_error(errc::io, "cannot reserve a TCP port on this host: {}", errno_text(errno));
      }
      if (limit.passed()) {
        throw_error(errc::io,
                    "cannot reserve a TCP port on this host: no free port. There are too many "
                    "connections, most of them probably of programs that have ended (`ss -s` "
                    "counts those in timewait, which lasts a minute); wait, or widen "
                    "net.ipv4.ip_local_port_range");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    // Set only now: bind() without reuse guarantees that nobody else had the port.
    const int yes = 1;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  }

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  /// Below Linux's default net.ipv4.ip_local_port_range.
  [[nodiscard]] std::uint16_t port_of_no_connection() {
    return std::uniform_int_distribution<std::uint16_t>(20'000, 32'000)(random_);
  }
  /// `port` 0: any. If false, errno says why.
  [[nodiscard]] bool takes(std::uint16_t port) {
    // An IPv6 socket covers IPv4 as well; hosts without IPv6 have only the second kind.
    return takes_v6(port) || takes_v4(port);
  }
  bool takes_v6(std::uint16_t port) {
    socket_ = descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return false;
    const int no = 0;
    ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = in6addr_any;
    if (!bind_to(address)) return false;
    number_ = ntohs(address.sin6_port);
    return true;
  }
  bool takes_v4(std::uint16_t port) {
    socket_ = descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return false;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    if (!bind_to(address)) return false;
    number_ = ntohs(address.sin_port);
    return true;
  }
  template <typename Address>
  bool bind_to(Address& address) {
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    return ::bind(socket_.get(), generic, size) == 0 &&
           ::getsockname(socket_.get(), generic, &size) == 0;
  }

  std::random_device random_;
  descriptor socket_;
  std::uint16_t number_ = 0;
};

}  // namespace parx::detail
