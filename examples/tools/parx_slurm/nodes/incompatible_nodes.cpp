#include "tools/parx_slurm/nodes/incompatible_nodes.hpp"

#include "tools/parx_slurm/nodes/nodes_of_job.hpp"
#include "tools/parx_slurm/nodes/salloc.hpp"
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

incompatible_nodes find_incompatible_nodes(const std::vector<sinfo_node>& nodes,
                             const std::vector<partition>& rules, std::string_view partitions,
                             instruction_level level) {
  incompatible_nodes found{.level = level, .names = {}, .features = {}, .all = false};
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
