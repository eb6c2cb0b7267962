// job_nodes: over which nodes a job runs and where they meet, from parxrun's options and the
// environment. Pure.
//
// The options are torchrun's (torch/distributed/run.py). Inside a step of srun with one task on
// each node nothing is needed: the first node of the step is the meeting point, and the port and
// the job's id come from the job and the step.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/ssh/ssh_hosts.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI {

/// Whether a node's agent listens at the endpoint for the others.
enum class coordinator_role {
  by_address,  ///< where the endpoint is an address of this host
  yes,
  no,
  only,  ///< it listens, and starts no ranks: the coordinator alone
};

/// With which a node may join a job.
inline constexpr int most_ranks_of_node = 4096;

struct job_nodes {
  int least = 1;  ///< nodes; with fewer the job waits
  int most = 1;
  std::string host;  ///< of the endpoint
  std::uint16_t port = 0;
  std::string id;      ///< empty: a new one; only for a job of one node
  int node_rank = -1;  ///< this node's place in the order of ranks; -1: by arrival
  coordinator_role role = coordinator_role::by_address;
  int restarts = 0;  ///< after failures, of the whole job
  on_join joins = on_join::now;
  on_loss losses = on_loss::end;
  std::chrono::milliseconds last_call{2'000};
  std::chrono::milliseconds join_limit{600'000};
  /// Whether a parxrun that has ended may be started again. srun starts each of its tasks once, and
  /// ends the others some time after the first has ended (--wait).
  bool may_return = true;

  /// Whether this node is the only one, and its parxrun keeps the job. Where nodes meet has no
  /// meaning then.
  [[nodiscard]] bool is_alone() const noexcept {
    return most == 1 && role != coordinator_role::no && role != coordinator_role::only;
  }
  /// Whether the ranks may be started more than once.
  [[nodiscard]] bool has_generations() const noexcept { return !is_alone() || restarts > 0; }
};

/// parxrun's options about nodes, as they were written; empty where they were not.
struct node_flags {
  std::string nodes = {};      ///< --nnodes
  std::string endpoint = {};   ///< --rdzv-endpoint
  std::string id = {};         ///< --rdzv-id
  std::string backend = {};    ///< --rdzv-backend
  std::string conf = {};       ///< --rdzv-conf
  std::string node_rank = {};  ///< --node-rank
  std::string master_addr = {};
  std::string master_port = {};
  bool standalone = false;
  bool coordinator = false;       ///< --coordinator
  std::vector<ssh_host> hosts{};  ///< --hosts, --hostfile
  int restarts = 0;
  on_join joins = on_join::now;
  on_loss losses = on_loss::end;
};

namespace detail {

inline constexpr std::uint16_t default_endpoint_port = 29400;  // torchrun's

[[nodiscard]] generation_rules rules_of(const job_nodes& nodes);

}  // namespace detail

/// Throws usage_error where the options contradict each other or the step of srun.
[[nodiscard]] job_nodes find_nodes(const node_flags& flags, const environment& env);

}  // namespace parx
