// partition_limit: for how long a job may run in the partitions that it names. sbatch takes one
// that asks for more, and it then waits for ever: (PartitionTimeLimit). Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <vector>

#include "tools/parx_slurm/nodes/partition.hpp"
#include "tools/parx_slurm/nodes/sinfo.hpp"

namespace parx::inline PARX_ABI::slurm {

/// The longest of the limits of `partitions`, as nodes_of_job() has them; nullopt where they have
/// no nodes.
[[nodiscard]] std::optional<std::chrono::seconds> partition_limit(
    const std::vector<sinfo_node>& nodes, const std::vector<partition>& rules,
    std::string_view partitions);

}  // namespace parx::slurm
