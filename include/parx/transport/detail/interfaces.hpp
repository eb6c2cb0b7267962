// Which of its host's addresses a rank publishes.
//
// By default the source address of its route to the job's store, since that address is known to
// work. PARX_SOCKET_IFNAME (else GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME) overrides it, in NCCL's
// syntax plus CIDR: a comma-separated list of name prefixes ("eth,ib"), "=eth0" for an exact name,
// "^docker,lo" to exclude, "10.0.0.0/8" for a network.
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/core/env.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/printable.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

struct interface_address {
  std::string name;     ///< "eth0"
  std::string address;  ///< numeric, "10.0.0.7" or "fe80::1"
};

/// Link-local addresses are unique per network segment only, so two hosts may have the same one.
[[nodiscard]] inline bool is_link_local(std::string_view address) noexcept {
  return address.substr(0, 8) == "169.254." || address.substr(0, 5) == "fe80:";
}

/// Whether `address` lies in `network` ("10.0.0.0/8"); nullopt where `network` is no CIDR text.
[[nodiscard]] inline std::optional<bool> in_network(std::string_view address,
                                                    std::string_view network) {
  const auto slash = network.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto bits = parse_number<unsigned>(network.substr(slash + 1));
  if (!bits) return std::nullopt;
  for (const auto& [family, size] : {std::pair{AF_INET, 4u}, std::pair{AF_INET6, 16u}}) {
    unsigned char wanted[16] = {};
    unsigned char given[16] = {};
    if (::inet_pton(family, std::string(network.substr(0, slash)).c_str(), wanted) != 1) continue;
    if (*bits > 8 * size) return std::nullopt;
    if (::inet_pton(family, std::string(address).c_str(), given) != 1) return false;
    for (unsigned bit = 0; bit < *bits; ++bit) {
      const unsigned mask = 0x80u >> (bit % 8);
      if (((wanted[bit / 8] ^ given[bit / 8]) & mask) != 0) return false;
    }
    return true;
  }
  return std::nullopt;
}

/// Whether a rule in the syntax described above admits an interface.
[[nodiscard, gnu::cold]] inline bool interface_matches(std::string_view rule,
                                                       const interface_address& candidate) {
  const bool excludes = !rule.empty() && rule.front() == '^';
  if (excludes) rule.remove_prefix(1);
  const bool exact = !rule.empty() && rule.front() == '=';
  if (exact) rule.remove_prefix(1);
  bool listed = false;
  for (const std::string_view item : split_at(rule, ',')) {
    if (item.empty()) continue;
    if (const auto inside = in_network(candidate.address, item)) {
      listed |= *inside;
    } else {
      listed |= exact ? candidate.name == item : candidate.name.substr(0, item.size()) == item;
    }
  }
  return listed != excludes;
}

/// The numeric addresses of all interfaces that are up.
[[nodiscard, gnu::cold]] inline std::vector<interface_address> interface_addresses() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    throw_error(errc::io, "the network interfaces cannot be listed: {}", errno_text(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(raw, &::freeifaddrs);
  std::vector<interface_address> found;
  for (const ifaddrs* each = list.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string text = address_text(each->ifa_addr, length);
    if (!text.empty()) found.push_back({each->ifa_name, text});
  }
  return found;
}

/// The source address of this host's route to `host`; empty where there is no route.
[[nodiscard]] inline std::string source_address_towards(const std::string& host) {
  int code = 0;
  const address_list list = find_addresses(host.c_str(), 9, 0, code);
  for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
    // Connecting a datagram socket sends nothing; it only looks up the route.
    const descriptor probe(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!probe.valid() || ::connect(probe.get(), each->ai_addr, each->ai_addrlen) != 0) continue;
    const auto own = socket_address::of(probe.get());
    std::string text = address_text(own.data(), own.length);
    if (!text.empty()) return text;
  }
  return {};
}

/// The address that a rank publishes. `several_hosts`: ranks on other hosts must reach it.
[[nodiscard, gnu::cold]] inline std::string choose_address(const environment& env,
                                                           const std::string& store_host,
                                                           bool several_hosts) {
  const auto candidates = interface_addresses();
  for (const char* variable : {"PARX_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}) {
    const auto rule = env_string(env, variable);
    if (!rule) continue;
    const interface_address* found = nullptr;
    std::string seen;
    for (const auto& each : candidates) {
      seen += formatted("{}{} ({})", seen.empty() ? "" : ", ", each.name, each.address);
      const bool usable = interface_matches(*rule, each) && !is_link_local(each.address) &&
                          !(several_hosts && rule->front() == '^' && is_loopback(each.address));
      if (usable && found == nullptr) found = &each;
    }
    if (found == nullptr) {
      throw_usage("{}=\"{}\" matches none of this host's interfaces: {}", variable,
                  printable(*rule), seen);
    }
    return found->address;
  }
  std::string chosen = source_address_towards(store_host);
  if (chosen.empty()) chosen = loopback_address();
  if (several_hosts && is_loopback(chosen)) {
    // The store is on this host, whose name often resolves to 127.0.1.1. Other hosts need another
    // address.
    for (const auto& each : candidates) {
      if (!is_loopback(each.address) && !is_link_local(each.address)) return each.address;
    }
  }
  return chosen;
}

}  // namespace parx::detail
