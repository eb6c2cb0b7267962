#include "tools/parxrun/ranks/rank_variables.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <parx/core/cpu_quota.hpp>
#include <parx/core/thread_count.hpp>

namespace parx::inline PARX_ABI::detail {

namespace {

/// What this process may use, divided among its ranks: the cores of its mask, or the quota of its
/// control groups where that is less.
int cores_per_rank(int ranks) {
  const auto cores = static_cast<double>(allowed_cores().size());
  return std::max(1, static_cast<int>(std::min(cores, own_cpu_quota().value_or(cores)) / ranks));
}

/// Whether an outer launcher's variable `name` describes parxrun's own place in an outer job.
bool is_outer_rank_variable(std::string_view name) {
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

}  // namespace

local_job local_job::of(const form_order& form, const job_nodes& nodes,
                        const agent_options& options, const std::string& secret_file,
                        const std::string& secret) {
  const bool keeps_store = form.store_port != 0;
  return {.host = nodes.host,
          .port = keeps_store ? form.store_port : form.master_port,
          .other_host = form.master_host,
          .other_port = form.master_port,
          .ranks = options.ranks,
          .most_restarts = nodes.restarts,
          .run_id = form.run_id,
          .job_id = nodes.id,
          .secret_file = secret.empty() ? "" : secret_file,
          .secret = secret_file.empty() ? secret : "",
          .keeps_store = keeps_store,
          .threads_per_rank = cores_per_rank(options.ranks),
          .threads = options.threads,
          .role = options.role,
          .place = form.place};
}

environment rank_variables(environment env, const local_job& job, int rank,
                           const std::string& error_file) {
  std::erase_if(env, [](const auto& entry) { return is_outer_rank_variable(entry.first); });
  const auto set = [&](std::string_view name, std::string value) {
    env.insert_or_assign(std::string(name), std::move(value));
  };
  const rank_placement& place = job.place;
  const std::string world_size = std::to_string(place.world_size);
  for (const std::string_view prefix : {"PARX_", ""}) {
    const auto set_both = [&](std::string_view name, std::string value) {
      set(std::string(prefix) + std::string(name), std::move(value));
    };
    set_both("RANK", std::to_string(rank));
    set_both("LOCAL_RANK", std::to_string(rank - place.first_rank));
    set_both("WORLD_SIZE", world_size);
    set_both("LOCAL_WORLD_SIZE", std::to_string(job.ranks));
  }
  set("PARX_MASTER_ADDR", job.host);
  set("PARX_MASTER_PORT", std::to_string(job.port));
  set("MASTER_ADDR", job.other_host);
  set("MASTER_PORT", std::to_string(job.other_port));
  set("PARX_NODE_RANK", std::to_string(place.node_rank));
  set("PARX_GENERATION", std::to_string(place.generation));
  env.erase("PARX_COORDINATOR");
  if (!place.coordinator.empty()) set("PARX_COORDINATOR", place.coordinator);
  set("PARX_ATTEMPT", std::to_string(place.restarts));
  // torchrun's (torch/distributed/elastic/agent/server/local_elastic_agent.py), by which programs
  // find out that they may be started again.
  set("GROUP_RANK", std::to_string(place.node_rank));
  set("GROUP_WORLD_SIZE", std::to_string(place.nodes));
  set("ROLE_NAME", job.role);
  set("ROLE_RANK", std::to_string(rank));
  set("ROLE_WORLD_SIZE", world_size);
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(place.restarts));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(job.most_restarts));
  set("TORCHELASTIC_RUN_ID", job.job_id);
  // parxrun's store is not PyTorch's: rank 0 serves one at MASTER_PORT.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  env.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  set("PARX_RUN_ID", job.run_id);
  if (!error_file.empty()) set("TORCHELASTIC_ERROR_FILE", error_file);
  env.erase("PARX_STORE_HOSTED_BY");
  if (job.keeps_store) set("PARX_STORE_HOSTED_BY", "parxrun");
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
