// incompatible_nodes: the nodes of a cluster whose processor is older than a program was compiled
// for, and what keeps a job off them. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/common/instruction_level.hpp"
#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"

namespace parx::inline PARX_ABI::slurm {

struct incompatible_nodes {
  instruction_level level = instruction_level::baseline;  ///< that the program was compiled for
  std::vector<std::string> names;  ///< of the nodes whose features promise less; empty: none
  /// "milan|rome": each node that will do has one of these features, and no older one has; empty
  /// where there are no such features.
  std::string features;
  bool all = false;  ///< no node that will do is left
};

/// Of the nodes of `partitions`, as nodes_of_job() has them. A node whose features tell nothing
/// counts as one that will do.
[[nodiscard]] incompatible_nodes find_incompatible_nodes(const std::vector<sinfo_node>& nodes,
                                           const std::vector<partition>& rules,
                                           std::string_view partitions, instruction_level level);

}  // namespace parx::slurm
