// where_command: the line of parx_slurm where that asks for the nodes of a batch script. Pure.
#pragma once

#include <string>

#include "tools/parx_slurm/nodes/time_limit.hpp"
#include "tools/parx_slurm/script/batch_script.hpp"

namespace parx::inline PARX_ABI::slurm {

/// "parx_slurm where -N 3 --cores 8 -t 2:00:00 --program /home/u/train", as a user could type it.
/// `program`: whose instructions the nodes must have; empty: any node will do.
[[nodiscard]] std::string where_command(const batch_options& job, const std::string& program);

}  // namespace parx::slurm
