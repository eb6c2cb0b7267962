// coordinator_options: what a job's coordinator is told. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/job_nodes.hpp"
#include <parx/core/env.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/store/tcp_server.hpp>

namespace parx::inline PARX_ABI::detail {

struct coordinator_options {
  std::string host;     ///< of the endpoint, as the agents and ranks are given it
  std::string address;  ///< at which the stores listen; empty: all
  std::string id;       ///< of the job
  std::string secret;   ///< empty where it has none
  bool encrypts = false;
  bool has_generations = true;
  std::string command = {};  ///< of the ranks, as far as this process knows it
  generation_rules rules;
};

[[nodiscard]] inline coordinator_options coordinator_options_of(
    const job_nodes& nodes, const std::vector<std::string>& command, const std::string& secret,
    const environment& env) {
  return {.host = nodes.host,
          .address = narrowest_address(nodes.host),
          .id = nodes.id,
          .secret = secret,
          .encrypts = env_flag(env, "PARX_TLS").value_or(false),
          .has_generations = nodes.has_generations(),
          .command = joined_text(command, " "),
          .rules = rules_of(nodes)};
}

}  // namespace parx::detail
