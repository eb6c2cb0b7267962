// An id for a job started by MPICH's launcher (hydra). Its variables are the same for two jobs on a
// host, but each job's ranks on a host are descendants of one hydra_pmi_proxy.
#pragma once

#include <string>

#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/process_table.hpp>
#include <parx/launch/detail/rank_env.hpp>

namespace parx::inline PARX_ABI::detail {

/// The pid of the nearest ancestor that is a hydra proxy, or 0.
[[nodiscard, gnu::cold]] inline int find_hydra_proxy() {
  for (const pid_t pid : ancestors()) {
    const auto entry = find_process(pid);
    if (entry && entry->name.starts_with("hydra_")) return pid;
  }
  return 0;
}

/// `env` with PARX_RUN_ID added for a hydra job on one host that has no other id. On several hosts
/// nothing is added, because each has a proxy of its own.
[[nodiscard, gnu::cold]] inline environment with_hydra_run_id(environment env) {
  const auto size = env_string(env, "PMI_SIZE");
  if (size && size == env_string(env, "MPI_LOCALNRANKS") &&
      !any_set(env, {"PARX_RUN_ID", "PMI_JOBID"})) {
    if (const int pid = find_hydra_proxy(); pid != 0) {
      env["PARX_RUN_ID"] = formatted("hydra-{}", pid);
    }
  }
  return env;
}

}  // namespace parx::detail
