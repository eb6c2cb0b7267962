// detect_launch: which rank of which job this process is, from its launcher's variables.
//
// A pure function of an environment map. Where launchers are nested (mpirun inside a Slurm
// allocation, torchrun under srun) the innermost one counts, since the outer one's variables
// describe the inner one's daemon. Order: PARX_* (set only by parxrun or by hand; must agree with
// RANK and WORLD_SIZE), torchrun's names, Open MPI, PMI, a Slurm step, alone.
//
// Under every launcher PARX_MASTER_ADDR or MASTER_ADDR, and PARX_MASTER_PORT or MASTER_PORT, are
// the address of the store on rank 0. PARX_RUN_ID names the job. PARX_SECRET, or the file named by
// PARX_SECRET_FILE, is the job's secret. With PARX_TLS=1 the ranks encrypt their TCP connections.
#pragma once

#include <parx/core/env.hpp>
#include <parx/launch/launch_env.hpp>

namespace parx::inline PARX_ABI {

/// The job that `env` describes; a world of one where it describes none. Throws usage_error, naming
/// the variables and what to do, where the description is incomplete or contradictory.
[[nodiscard]] launch_env detect_launch(const environment& env);

/// The job that this process was started in.
[[nodiscard]] launch_env detect_launch();

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/launch/detail/detect_launch_impl.hpp>
#endif
