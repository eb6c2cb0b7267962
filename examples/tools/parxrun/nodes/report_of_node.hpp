// report_of_node: what a node says of its ranks: their exit code as one, and their report once they
// have ended.
#pragma once

#include <string>
#include <vector>

#include "tools/common/job_report.hpp"
#include "tools/parxrun/failures/failure_folder.hpp"
#include "tools/parxrun/nodes/generation.hpp"
#include "tools/parxrun/ranks/node_ranks.hpp"
#include <parx/core/env.hpp>

namespace parx::inline PARX_ABI::detail {

/// That of the first rank that has failed by itself.
[[nodiscard]] int code_of_failure(const node_ranks& ranks);

/// 0, 75 or another one, by all ranks, which have ended; where ranks go on after losses, by the
/// best.
[[nodiscard]] int code_of_ranks(const node_ranks& ranks, on_loss losses);

/// All of `ranks` have ended. Removes their flight recorders where all have succeeded.
[[nodiscard]] node_report report_of(node_ranks& ranks, const failure_folder& failures,
                                    const std::string& node,
                                    const std::vector<std::string>& command,
                                    const environment& env);

}  // namespace parx::detail
