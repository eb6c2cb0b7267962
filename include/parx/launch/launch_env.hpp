// detect_launch: which rank of which job this process is, from the variables its launcher left.
//
// A pure function of an environment map. Where launchers are nested (mpirun inside a Slurm
// allocation, torchrun under srun) the innermost is right, since the outer one's variables describe
// the inner one's daemon. Order: PARX_* (which only parxrun or a person sets, and which must agree
// with RANK and WORLD_SIZE), torchrun's names, Open MPI, PMI, a Slurm step, alone.
//
// Under every launcher PARX_MASTER_ADDR or MASTER_ADDR, and PARX_MASTER_PORT or MASTER_PORT, say
// where rank 0 keeps the store; PARX_RUN_ID names the job; PARX_SECRET, or the file that
// PARX_SECRET_FILE names, is what its ranks share.
#pragma once

#include <parx/core/env.hpp>
#include <parx/launch/detail/hydra.hpp>
#include <parx/launch/detail/job_secret.hpp>
#include <parx/launch/detail/mpi_env.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/detail/slurm_env.hpp>
#include <parx/launch/launcher.hpp>

namespace parx::inline PARX_ABI {

/// The job that `env` describes; a world of one where it describes none. Throws usage_error, naming
/// the variables and what to do, where the description is half set or contradicts itself.
[[nodiscard]] inline launch_env detect_launch(const environment& env) {
  using namespace detail;
  launch_env job;
  if (any_set(env, {"PARX_RANK", "PARX_WORLD_SIZE"})) {
    job = from_parx(env);
  } else if (any_set(env, {"RANK"})) {
    job = from_torchrun(env);
  } else if (any_set(env, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    job = from_open_mpi(env);
  } else if (any_set(env, {"PMI_RANK", "PMI_SIZE"}) && !is_srun_pmi(env)) {
    job = from_pmi(env);
  } else if (in_slurm_step(env)) {
    job = from_slurm(env);
  } else {
    job = from_nothing(env);
  }
  check_world_size_variable(env, job);
  if (auto run_id = env_string(env, "PARX_RUN_ID")) job.run_id = *run_id;
  if (job.started_by == launcher::torchrun) {
    // A static torchrun keeps one store, with its old keys, over restarts.
    job.run_id += "." + env_string(env, "TORCHELASTIC_RESTART_COUNT").value_or("0");
  }
  job.secret = env_string(env, "PARX_SECRET").value_or("");
  return job;
}

/// The job that this process was started in.
[[nodiscard]] inline launch_env detect_launch() {
  return detect_launch(detail::with_secret(detail::with_hydra_run_id(process_environment())));
}

}  // namespace parx
