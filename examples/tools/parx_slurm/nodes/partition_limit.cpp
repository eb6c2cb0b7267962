#include "tools/parx_slurm/nodes/partition_limit.hpp"

#include <algorithm>

#include "tools/parx_slurm/nodes/nodes_of_job.hpp"

namespace parx::inline PARX_ABI::slurm {

std::optional<std::chrono::seconds> partition_limit(const std::vector<sinfo_node>& nodes,
                                                  const std::vector<partition>& rules,
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
