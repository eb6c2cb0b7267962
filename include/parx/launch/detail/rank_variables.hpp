// The environment that parxrun gives a rank: a pure function of its own environment and the job.
//
// A rank gets PARX_* for parx programs and torchrun's names for all others. The variables by which
// an outer launcher describes parxrun itself are removed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/cpu_quota.hpp>
#include <parx/core/env.hpp>
#include <parx/core/socket_address.hpp>
#include <parx/core/thread_count.hpp>

namespace parx::inline PARX_ABI::detail {

/// What this process may use, divided among its ranks: the cores of its mask, or the quota of its
/// control groups where that is less.
[[nodiscard]] inline int threads_per_rank(int ranks) {
  const auto cores = static_cast<double>(allowed_cores().size());
  return std::max(1, static_cast<int>(std::min(cores, own_cpu_quota().value_or(cores)) / ranks));
}

/// The settings that all ranks of one start share.
struct local_job {
  std::string host = loopback_address();
  int ranks = 1;
  std::uint16_t port = 0;
  std::string run_id;
  std::string secret_file;   ///< the file with the job's secret; empty where there is none
  std::string secret;        ///< the secret itself, where it cannot be in a file
  bool keeps_store = false;  ///< parxrun keeps the job's store, instead of rank 0
  int threads_per_rank = 1;  ///< becomes OMP_NUM_THREADS where that is unset
  int threads = 0;           ///< as the user has asked; 0: has not
};

/// Whether an outer launcher's variable `name` describes parxrun's own place in an outer job.
[[nodiscard]] inline bool is_outer_rank_variable(std::string_view name) {
  for (const std::string_view prefix :
       {"OMPI_COMM_WORLD_", "PMI_", "PMIX_", "MPI_LOCAL", "TORCHELASTIC_"}) {
    if (name.starts_with(prefix)) return true;
  }
  for (const std::string_view one :
       {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_STEP_ID",
        "SLURM_STEPID", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK",
        "ROLE_WORLD_SIZE"}) {
    if (name == one) return true;
  }
  return false;
}

/// `error_file`: where the rank may leave the record of its failure; empty: nowhere.
[[nodiscard]] inline environment rank_variables(environment env, const local_job& job, int rank,
                                                const std::string& error_file = {}) {
  std::erase_if(env, [](const auto& entry) { return is_outer_rank_variable(entry.first); });
  const auto set = [&](std::string_view name, std::string value) {
    env.insert_or_assign(std::string(name), std::move(value));
  };
  for (const std::string_view prefix : {"PARX_", ""}) {
    const auto set_both = [&](std::string_view name, std::string value) {
      set(std::string(prefix) + std::string(name), std::move(value));
    };
    set_both("RANK", std::to_string(rank));
    set_both("LOCAL_RANK", std::to_string(rank));
    set_both("WORLD_SIZE", std::to_string(job.ranks));
    set_both("LOCAL_WORLD_SIZE", std::to_string(job.ranks));
    set_both("MASTER_ADDR", job.host);
    set_both("MASTER_PORT", std::to_string(job.port));
  }
  set("PARX_RUN_ID", job.run_id);
  if (!error_file.empty()) set("TORCHELASTIC_ERROR_FILE", error_file);
  env.erase("PARX_STORE_KEEPER");
  if (job.keeps_store) set("PARX_STORE_KEEPER", "parxrun");
  env.erase("PARX_SECRET");
  env.erase("PARX_SECRET_FILE");
  if (!job.secret_file.empty()) set("PARX_SECRET_FILE", job.secret_file);
  if (!job.secret.empty()) set("PARX_SECRET", job.secret);
  if (job.threads > 0) {
    set("PARX_THREADS", std::to_string(job.threads));
    set("OMP_NUM_THREADS", std::to_string(job.threads));
  } else if (!env_string(env, "OMP_NUM_THREADS")) {
    set("OMP_NUM_THREADS", std::to_string(job.threads_per_rank));
  }
  return env;
}

}  // namespace parx::detail
