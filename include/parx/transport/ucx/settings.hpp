// What UCX is told to do: a pure function of the environment.
//
// PARX_SOCKET_IFNAME holds for UCX's TCP, too: UCX itself takes any interface that is up, even a
// bridge. UCX's own keepalive is a message. Over TCP it hides a cut link: while it is not
// acknowledged the kernel sends no probes of its own. So there the kernel's keepalive serves
// instead, and UCX's serves everywhere else.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::detail {

/// UCX's settings by name, without their prefix UCX_.
using ucx_settings = std::vector<std::pair<std::string, std::string>>;

/// Whether UCX_TLS ("tcp,self") names transports that do not leave the host, and TCP, but no other;
/// without one whether the host has no other.
[[nodiscard]] inline bool has_only_tcp(const environment& env, bool host_has_rdma) {
  const std::string allowed = env_string(env, "UCX_TLS").value_or("all");
  bool only = true;
  for (const std::string_view each : split_at(allowed, ',')) {
    only &= each == "tcp" || each == "self" || (each == "all" && !host_has_rdma);
  }
  return only;
}

/// Whether this host has a device for InfiniBand or RoCE.
[[nodiscard]] inline bool has_rdma_device() noexcept {
  DIR* const folder = ::opendir("/sys/class/infiniband");
  if (folder == nullptr) return false;
  bool found = false;
  while (const dirent* const each = ::readdir(folder)) found |= each->d_name[0] != '.';
  ::closedir(folder);
  return found;
}

/// UCX_RNDV_THRESH in bytes; nullopt where it is not set, or left to UCX ("auto").
[[nodiscard]] inline std::optional<std::size_t> rendezvous_threshold(const environment& env) {
  return parse_number<std::size_t>(env_string(env, "UCX_RNDV_THRESH").value_or(""));
}

/// What differs from UCX's defaults, and what `env` sets in their place. `interface_name` is that
/// of the address which this rank publishes.
[[nodiscard]] inline ucx_settings ucx_settings_for(const environment& env, bool host_has_rdma,
                                                   const std::string& interface_name) {
  const bool only_tcp = has_only_tcp(env, host_has_rdma);
  ucx_settings chosen{{"KEEPALIVE_INTERVAL", only_tcp ? "inf" : "1s"}};
  if (only_tcp && !interface_name.empty()) chosen.emplace_back("NET_DEVICES", interface_name);
  for (auto& [name, value] : chosen) {
    if (const auto given = env_string(env, "UCX_" + name)) value = *given;
  }
  if (const auto given = env_string(env, "UCX_TLS")) chosen.emplace_back("TLS", *given);
  return chosen;
}

}  // namespace parx::detail
