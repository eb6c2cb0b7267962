// cluster_of: the ranks and hosts of a group, for a plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/plan/cluster.hpp>

namespace parx::inline PARX_ABI {

/// Local. If hosts have different numbers of ranks, all count as having as many as the fullest.
/// Speeds are cluster's defaults.
[[nodiscard]] inline cluster cluster_of(const process_group& group) {
  const std::vector<int> hosts = group.hosts();
  std::ptrdiff_t fullest = 1;
  for (const int host : hosts) {
    fullest = std::max(fullest, std::count(hosts.begin(), hosts.end(), host));
  }
  const int a_host = static_cast<int>(fullest);
  const int full_hosts = (group.size() + a_host - 1) / a_host;
  return {
      .ranks = full_hosts * a_host, .hosts = full_hosts, .shares_memory = group.shares_memory()};
}

}  // namespace parx
