// through_srun: a command as srun must be given it, so that it starts just that. Pure.
#pragma once

#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// srun takes an argument ":" anywhere in its line, also behind "--", for the beginning of another
/// part of a heterogeneous step. A shell puts it back: sh -c 'exec "$0" "$1" : "$2"' ./train a b
[[nodiscard]] std::vector<std::string> through_srun(const std::vector<std::string>& command);

}  // namespace parx::slurm
