#include "tools/parxrun/nodes/endpoint_listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hostlist.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/slurm_env.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

bool is_own_address(const std::string& host) {
  int code = 0;
  const address_list found = find_addresses(without_brackets(host).c_str(), 0, 0, code);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const descriptor probe = stream_socket(each->ai_family);
    if (probe.valid() && ::bind(probe.get(), each->ai_addr, each->ai_addrlen) == 0) return true;
  }
  return false;
}

namespace {

/// The numeric addresses of a host; none where it cannot be resolved.
std::vector<std::string> addresses_of(const std::string& host) {
  int code = 0;
  const address_list found = find_addresses(without_brackets(host).c_str(), 0, 0, code);
  std::vector<std::string> texts;
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    texts.push_back(address_text(each->ai_addr, each->ai_addrlen));
  }
  return texts;
}

/// Whether a step of srun is known to have no node with an address of `host`:
/// SLURM_LAUNCH_NODE_IPADDR for instance is that of the host where srun runs, and all nodes would
/// wait there for ever.
bool is_outside_step(const std::string& host, const environment& env) {
  static constexpr std::size_t most_resolved = 64;
  const auto list = env_string(env, "SLURM_STEP_NODELIST");
  if (!in_slurm_step(env) || !list) return false;
  const std::vector<std::string> step = expand_hostlist(*list);
  const std::vector<std::string> wanted = addresses_of(host);
  if (step.size() > most_resolved || wanted.empty()) return false;
  for (const std::string& node : step) {
    if (node == host) return false;
    const std::vector<std::string> known = addresses_of(node);
    if (known.empty()) return false;  // who knows
    for (const std::string& each : known) {
      if (std::find(wanted.begin(), wanted.end(), each) != wanted.end()) return false;
    }
  }
  return true;
}

/// Whether somebody listens at `host`, which is this one. A process can have a port without
/// listening; then the kernel refuses connections.
bool is_listened_at(const std::string& host, std::uint16_t port) {
  static constexpr int most_milliseconds = 200;
  int code = 0;
  const address_list found = find_addresses(without_brackets(host).c_str(), port, 0, code);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    const int state = probe_address(each->ai_addr, each->ai_addrlen, most_milliseconds);
    // Without an answer it has many connections to accept.
    if (state == 0 || state == EINPROGRESS) return true;
  }
  return false;
}

}  // namespace

std::string listener_text(const std::string& host, std::uint16_t port) {
  if (!is_own_address(host)) return {};
  const port_user user = port_owner(port);
  if (user.pid == 0 || !user.socket.listens) return {};
  return formatted("; there listens process {} of this host ({})", user.pid,
                   printable(user.command));
}

descriptor listen_at_endpoint(const job_nodes& nodes, const environment& env) {
  if (nodes.role == coordinator_role::no) return {};
  const bool is_own = is_own_address(nodes.host);
  if (!is_own && nodes.role == coordinator_role::by_address) {
    require(!is_outside_step(nodes.host, env),
            "{} is the address of none of the step's nodes {}, so nobody listens there: give the "
            "first of them by --rdzv-endpoint, or nothing, which means the same. Where a parxrun "
            "--coordinator runs there, say so by --rdzv-conf is_host=0",
            nodes.host, env_string(env, "SLURM_STEP_NODELIST").value_or(""));
    return {};
  }
  require(is_own,
          "this node is to be the first of the job, but {} is no address of it: give the first "
          "node's name by --rdzv-endpoint or --master-addr, the same on all nodes",
          nodes.host);
  // Another parxrun of this node listens at once, and a connection that has the port may end soon.
  static constexpr std::chrono::milliseconds patience{500};
  static constexpr std::chrono::milliseconds pause{20};
  const deadline limit = deadline::after(patience);
  int why = 0;
  int code = 0;
  const std::string address = narrowest_address(nodes.host);
  const char* const node = address.empty() ? nullptr : address.c_str();
  const address_list found = find_addresses(node, nodes.port, AI_PASSIVE, code);
  const auto listen = [&]() -> descriptor {
    for (const int family : {AF_INET6, AF_INET}) {
      for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
        if (each->ai_family != family) continue;
        if (descriptor socket = listen_at(*each, why); socket.valid()) return socket;
        if (why == EADDRINUSE) return {};
      }
    }
    return {};
  };
  for (;;) {
    if (descriptor socket = listen(); socket.valid()) return socket;
    if (why != EADDRINUSE || nodes.role != coordinator_role::by_address) break;
    if (is_listened_at(nodes.host, nodes.port)) return {};
    if (limit.passed()) break;
    std::this_thread::sleep_for(pause);
  }
  throw_error(errc::io, "cannot listen for the other nodes at {}: {}",
              with_port(nodes.host, nodes.port),
              why != EADDRINUSE ? errno_text(why)
                                : in_use_text(port_owner(nodes.port)) +
                                      " MASTER_PORT, or --rdzv-endpoint HOST:PORT, sets it, the "
                                      "same on all nodes");
}

}  // namespace parx::detail
