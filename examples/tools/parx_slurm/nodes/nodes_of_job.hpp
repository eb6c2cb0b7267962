// nodes_of_job: the nodes that a job can get, by the partitions that it names. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"

namespace parx::inline PARX_ABI::slurm {

/// Those of `nodes` in `partitions` ("zen,test"; empty: the default one, or all where `rules` do
/// not tell it).
[[nodiscard]] std::vector<sinfo_node> nodes_of_job(const std::vector<sinfo_node>& nodes,
                                                   const std::vector<partition>& rules,
                                                   std::string_view partitions);

}  // namespace parx::slurm
