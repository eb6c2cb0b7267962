// detect_launch: which rank of which job this process is, from the variables its launcher left.
//
// A pure function of an environment map. Where launchers are nested (mpirun inside a Slurm
// allocation, torchrun under srun) the innermost is right, since the outer one's variables describe
// the inner one's daemon. Order: PARX_* (which only parxrun or a person sets, and which must agree
// with RANK and WORLD_SIZE), torchrun's names, Open MPI, PMI, a Slurm step, alone.
//
// Under every launcher PARX_MASTER_ADDR or MASTER_ADDR, and PARX_MASTER_PORT or MASTER_PORT, say
// where rank 0 keeps the store; PARX_RUN_ID names the job; PARX_SECRET, or the file that
// PARX_SECRET_FILE names, is what its ranks share; PARX_TLS=1 has them encrypt what they send.
#pragma once

#include <parx/core/env.hpp>
#include <parx/launch/launcher.hpp>

namespace parx::inline PARX_ABI {

/// The job that `env` describes; a world of one where it describes none. Throws usage_error, naming
/// the variables and what to do, where the description is half set or contradicts itself.
[[nodiscard]] launch_env detect_launch(const environment& env);

/// The job that this process was started in.
[[nodiscard]] launch_env detect_launch();

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/launch/detail/launch_env_impl.hpp>
#endif
