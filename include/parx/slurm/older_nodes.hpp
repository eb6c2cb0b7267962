// older_nodes: the nodes of a cluster whose processor is older than a program was compiled for, and
// what keeps a job off them. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/joined_text.hpp>
#include <parx/slurm/instruction_level.hpp>
#include <parx/slurm/nodes_of_job.hpp>
#include <parx/slurm/partition.hpp>
#include <parx/slurm/salloc.hpp>
#include <parx/slurm/sinfo.hpp>

namespace parx::inline PARX_ABI::slurm {

struct older_nodes {
  instruction_level level = instruction_level::baseline;  ///< that the program was compiled for
  std::vector<std::string> names;  ///< of the nodes whose features promise less; empty: none
  /// "milan|rome": each node that will do has one of these features, and no older one has; empty
  /// where there are no such features.
  std::string features;
  bool all = false;  ///< no node that will do is left
};

/// Of the nodes of `partitions`, as nodes_of_job() has them. A node whose features tell nothing
/// counts as one that will do.
[[nodiscard]] inline older_nodes find_older_nodes(const std::vector<sinfo_node>& nodes,
                                                  const std::vector<partition>& rules,
                                                  std::string_view partitions,
                                                  instruction_level level) {
  older_nodes found{.level = level, .names = {}, .features = {}, .all = false};
  std::vector<sinfo_node> newer, older;
  for (const sinfo_node& node : nodes_of_job(nodes, rules, partitions)) {
    const auto promised = level_of_features(node.features);
    const bool is_older = promised && *promised < level;
    (is_older ? older : newer).push_back(node);
    if (is_older && !detail::has(found.names, node.name)) found.names.push_back(node.name);
  }
  found.all = newer.empty() && !older.empty();
  if (!older.empty()) found.features = joined_text(detail::telling_features(newer, older), "|");
  return found;
}

}  // namespace parx::slurm
