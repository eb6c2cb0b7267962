// longest_limit: for how long a job may run in the partitions that it names. sbatch takes one that
// asks for more, and it then waits for ever: (PartitionTimeLimit). Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include <parx/slurm/nodes_of_job.hpp>
#include <parx/slurm/partition.hpp>
#include <parx/slurm/sinfo.hpp>

namespace parx::inline PARX_ABI::slurm {

/// The longest of the limits of `partitions`, as nodes_of_job() has them; nullopt where they have
/// no nodes.
[[nodiscard]] inline std::optional<std::chrono::seconds> longest_limit(
    const std::vector<sinfo_node>& nodes, const std::vector<partition>& rules,
    std::string_view partitions) {
  std::optional<std::chrono::seconds> longest;
  for (const sinfo_node& node : nodes_of_job(nodes, rules, partitions)) {
    // A limit that sinfo does not tell may be any.
    longest = std::max(longest.value_or(std::chrono::seconds(0)),
                       node.time_limit.value_or(no_time_limit));
  }
  return longest;
}

}  // namespace parx::slurm
