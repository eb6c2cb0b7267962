// keeper_options: what a job's keeper is told. Pure.
#pragma once

#include <string>
#include <string_view>

#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/nodes/job_nodes.hpp"
#include <parx/core/env.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

struct keeper_options {
  std::string host;     ///< of the endpoint, as the agents and ranks are given it
  std::string address;  ///< at which the stores listen; empty: all
  std::string id;       ///< of the job
  std::string secret;   ///< empty where it has none
  bool encrypts = false;
  generation_rules rules;
};

[[nodiscard]] keeper_options keeper_options_of(const job_nodes& nodes, const std::string& secret,
                                               const environment& env);

/// The id of one generation's ranks (PARX_RUN_ID).
[[nodiscard]] inline std::string run_id_of(std::string_view job, int generation) {
  return formatted("{}.{}", job, generation);
}

}  // namespace parx::detail
