// The variables of Open MPI's and PMI's launchers. Neither has the address of rank 0, so a job on
// one host uses loopback and a port computed from the job's id, and a job on several hosts needs
// MASTER_ADDR.
#pragma once

#include <string>

#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/launch_env.hpp>

namespace parx::inline PARX_ABI::detail {

[[gnu::cold]] inline void find_mpi_master(const environment& env, launch_env& job,
                                          std::string_view how_to_pass) {
  job.master_port = port_of_name(job.run_id);
  if (job.local_world_size == job.world_size) job.master_host = loopback_address();
  read_master(env, job);
  require(
      !job.master_host.empty(),
      "{} started {} processes, {} of them on this host, and does not tell them where rank 0 is. "
      "Set MASTER_ADDR to the first host of the job ({}); inside a Slurm job that is "
      "$(scontrol show hostnames | head -n1), and srun needs no such help",
      to_string(job.started_by), job.world_size,
      job.local_world_size ? std::to_string(*job.local_world_size) : "some", how_to_pass);
}

[[nodiscard, gnu::cold]] inline launch_env from_open_mpi(const environment& env) {
  launch_env job = read_ranks(env,
                              {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                               "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
                              launcher::open_mpi);
  // Open MPI up to 4 sets the first one; the second one is also set by Open MPI 5.
  for (const std::string_view name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}) {
    const auto id = env_string(env, name);
    if (id && job.run_id.empty()) job.run_id = "ompi-" + *id;
  }
  find_mpi_master(env, job, "mpirun -x MASTER_ADDR=HOST ...");
  return job;
}

/// The launcher's local rank is MPI_LOCALRANKID in MPICH's hydra and Intel MPI, PMI_LOCAL_RANK in
/// Cray's PALS.
[[nodiscard, gnu::cold]] inline launch_env from_pmi(const environment& env) {
  const bool pals = !any_set(env, {"MPI_LOCALRANKID"});
  launch_env job = read_ranks(env,
                              {"PMI_RANK", "PMI_SIZE", pals ? "PMI_LOCAL_RANK" : "MPI_LOCALRANKID",
                               pals ? "PMI_LOCAL_SIZE" : "MPI_LOCALNRANKS"},
                              launcher::pmi);
  if (const auto id = env_string(env, "PMI_JOBID")) job.run_id = "pmi-" + *id;
  // with_hydra_run_id() has set it from the launcher's pid where PMI_JOBID is missing. Without
  // either, two jobs on one host get the same port, and MASTER_PORT must be set for one of them.
  if (const auto id = env_string(env, "PARX_RUN_ID")) job.run_id = *id;
  find_mpi_master(env, job, "mpiexec -genv MASTER_ADDR HOST ...");
  return job;
}

}  // namespace parx::detail
