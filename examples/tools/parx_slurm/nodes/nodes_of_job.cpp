#include "tools/parx_slurm/nodes/nodes_of_job.hpp"

#include <algorithm>
#include <iterator>

#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

std::vector<sinfo_node> nodes_of_job(const std::vector<sinfo_node>& nodes,
                                     const std::vector<partition>& rules,
                                     std::string_view partitions) {
  std::vector<std::string_view> names;
  for (const std::string_view each : parx::detail::split_at(partitions, ',')) {
    if (!each.empty()) names.push_back(each);
  }
  if (names.empty()) {
    const auto usual = std::find_if(rules.begin(), rules.end(),
                                    [](const partition& each) { return each.is_default; });
    if (usual == rules.end()) return nodes;
    names.push_back(usual->name);
  }
  std::vector<sinfo_node> found;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(found), [&](const sinfo_node& each) {
    return std::find(names.begin(), names.end(), each.partition) != names.end();
  });
  return found;
}

}  // namespace parx::slurm
