// Definitions of detect_launch.hpp.
#pragma once

#include <parx/launch/detail/hydra.hpp>
#include <parx/launch/detail/job_secret.hpp>
#include <parx/launch/detail/mpi_env.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/detail/slurm_env.hpp>
#include <parx/launch/detect_launch.hpp>

namespace parx::inline PARX_ABI {

[[gnu::cold]] PARX_INLINE launch_env detect_launch(const environment& env) {
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
  if (env_string(env, "PARX_STORE_HOSTED_BY") == "parxrun") job.hosted_by = store_host::parxrun;
  job.secret = env_string(env, "PARX_SECRET").value_or("");
  job.encrypts = env_flag(env, "PARX_TLS").value_or(false);
  return job;
}

[[gnu::cold]] PARX_INLINE launch_env detect_launch() {
  return detect_launch(detail::with_secret(detail::with_hydra_run_id(process_environment())));
}

}  // namespace parx
