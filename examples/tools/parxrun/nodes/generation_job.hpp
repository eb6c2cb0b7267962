// generation_job: the job as the ranks of one node see it in one generation. Pure.
#pragma once

#include <string>

#include "tools/parxrun/nodes/job_nodes.hpp"
#include "tools/parxrun/nodes/messages.hpp"
#include "tools/parxrun/ranks/rank_variables.hpp"
#include "tools/parxrun/run_ranks.hpp"
#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// `secret_file` is where the ranks find the job's secret; empty where it is passed on as it is.
[[nodiscard]] local_job job_of_generation(const form_order& form, const job_nodes& nodes,
                                          const agent_options& options,
                                          const std::string& secret_file,
                                          const std::string& secret);

}  // namespace parx::detail
