// endpoint_listener: listening at a job's endpoint, where that is an address of this host.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/job_nodes.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

/// Whether this host has one of the addresses of `host`.
[[nodiscard]] inline bool is_own_address(const std::string& host) {
  int code = 0;
  const address_list found = find_addresses(without_brackets(host).c_str(), 0, 0, code);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const descriptor probe = stream_socket(each->ai_family);
    if (probe.valid() && ::bind(probe.get(), each->ai_addr, each->ai_addrlen) == 0) return true;
  }
  return false;
}

/// A socket that listens there; not valid where another node, or another parxrun of this one, is to
/// listen. Throws usage_error where this node is to, and the endpoint is no address of it; errc::io
/// where it cannot.
[[nodiscard]] inline descriptor listen_at_endpoint(const job_nodes& nodes) {
  if (nodes.role == keeper_role::no) return {};
  const bool is_own = is_own_address(nodes.host);
  if (!is_own && nodes.role == keeper_role::by_address) return {};
  require(is_own,
          "this node is to be the first of the job, but {} is no address of it: give the first "
          "node's name by --rdzv-endpoint or --master-addr, the same on all nodes",
          nodes.host);
  int why = 0;
  int code = 0;
  const std::string address = narrowest_address(nodes.host);
  const char* const node = address.empty() ? nullptr : address.c_str();
  const address_list found = find_addresses(node, nodes.port, AI_PASSIVE, code);
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      if (each->ai_family != family) continue;
      if (descriptor socket = listen_at(*each, why); socket.valid()) return socket;
      if (why == EADDRINUSE && nodes.role == keeper_role::by_address) return {};
    }
  }
  throw_error(errc::io, "parxrun cannot listen for the other nodes at {}: {}",
              with_port(nodes.host, nodes.port),
              why == EADDRINUSE ? in_use_text(port_owner(nodes.port)) : errno_text(why));
}

}  // namespace parx::detail
