// The variables of a task that srun started.
//
// The SLURM_STEP_ ones, never the SLURM_JOB_ ones: a step may be smaller than its job. A batch
// script or a shell of salloc is no task, though the script has SLURM_PROCID=0 and the job's
// SLURM_NTASKS. The store is on the step's first node, where srun places rank 0 in every
// distribution except "arbitrary"; never on SLURM_LAUNCH_NODE_IPADDR, where srun itself runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/hostlist.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/launch/detail/rank_env.hpp>
#include <parx/launch/launch_env.hpp>

namespace parx::inline PARX_ABI::detail {

/// Slurm numbers its special steps (batch script, salloc's interactive step, ...) from here on.
inline constexpr std::uint32_t first_special_slurm_step = 0xfffffff0;

[[nodiscard]] inline bool in_slurm_step(const environment& env) {
  const auto step = env_number<std::uint32_t>(env, "SLURM_STEP_ID");
  return step && *step < first_special_slurm_step;
}

/// Whether the PMI variables were set by srun itself (--mpi=pmi2), not by an mpiexec inside the
/// step.
[[nodiscard, gnu::cold]] inline bool is_srun_pmi(const environment& env) {
  return in_slurm_step(env) && env_string(env, "PMI_RANK") == env_string(env, "SLURM_PROCID") &&
         env_string(env, "PMI_SIZE") == env_string(env, "SLURM_STEP_NUM_TASKS");
}

/// The name of the step's first node; loopback when it is the only one, since its name may not
/// resolve.
[[nodiscard, gnu::cold]] inline std::string find_slurm_master(const environment& env,
                                                              const launch_env& job) {
  const auto list = env_string(env, "SLURM_STEP_NODELIST");
  require(list.has_value(),
          "SLURM_STEP_ID is set but SLURM_STEP_NODELIST is not, so rank 0's host is unknown. "
          "Start the program with srun, or set MASTER_ADDR to the host of rank 0");
  const std::vector<std::string> nodes = expand_hostlist(*list);
  if (nodes.size() == 1) return loopback_address();
  require(
      env_string(env, "SLURM_DISTRIBUTION") != "arbitrary",
      "srun -m arbitrary may put rank 0 on any node, and Slurm does not tell the others on which. "
      "Set MASTER_ADDR to rank 0's node (the first line of the file named by SLURM_HOSTFILE)");
  require(
      job.rank != 0 || job.node_rank.value_or(0) == 0,
      "rank 0 runs on node {} ({}) of the step, but the other ranks will look for it on the first, "
      "{}. Set MASTER_ADDR to rank 0's node",
      job.node_rank.value_or(0), env_string(env, "SLURMD_NODENAME").value_or("name unknown"),
      nodes.front());
  return nodes.front();
}

[[nodiscard, gnu::cold]] inline launch_env from_slurm(const environment& env) {
  launch_env job =
      read_ranks(env,
                 {.rank = "SLURM_PROCID",
                  .world_size = any_set(env, {"SLURM_STEP_NUM_TASKS"}) ? "SLURM_STEP_NUM_TASKS"
                                                                       : "SLURM_NTASKS",
                  .local_rank = "SLURM_LOCALID",
                  .node_rank = "SLURM_NODEID"},
                 launcher::slurm);
  if (const auto ranks_here = env_string(env, "SLURM_GTIDS")) {
    const auto commas = std::count(ranks_here->begin(), ranks_here->end(), ',');
    job.local_world_size = static_cast<int>(commas) + 1;
    check_rank("SLURM_LOCALID", job.local_rank.value_or(0), "the length of SLURM_GTIDS",
               *job.local_world_size);
  }

  const auto job_id = env_number<std::uint64_t>(env, "SLURM_JOB_ID");
  require(job_id.has_value(),
          "SLURM_STEP_ID is set but SLURM_JOB_ID is not. Start the program with srun, or unset the "
          "SLURM_ variables to run alone");
  const auto step_id = env_number<std::uint32_t>(env, "SLURM_STEP_ID").value();
  job.run_id = formatted("slurm-{}.{}", *job_id, step_id);
  if (const auto restarts = env_string(env, "SLURM_RESTART_COUNT")) job.run_id += "." + *restarts;

  // Jobs that share a node have near ids, and so have a job's steps: the first 64 steps of 155
  // consecutive jobs, and the same step of 9973 consecutive jobs, all get different ports.
  job.master_port = port_of_key(*job_id * 64 + step_id);
  read_master(env, job);
  if (job.world_size > 1 && job.master_host.empty()) job.master_host = find_slurm_master(env, job);
  return job;
}

/// A world of one, with a warning inside a Slurm job of several tasks that was not started by srun.
[[nodiscard, gnu::cold]] inline launch_env from_nothing(const environment& env) {
  launch_env job;
  job.local_rank = 0;
  job.local_world_size = 1;
  const auto tasks = env_number<int>(env, "SLURM_NTASKS");
  if (tasks && *tasks > 1) {
    job.warning = formatted(
        "this process was started by the script or shell of Slurm job {} itself, not by srun, and "
        "runs alone. Start the program with srun to use the job's {} tasks",
        env_string(env, "SLURM_JOB_ID").value_or("(unknown)"), *tasks);
  }
  return job;
}

}  // namespace parx::detail
