// attempt_file: attempt.json beside the logs of a generation: who took part, when, and why it
// ended.
#pragma once

#include "tools/parxrun/agent_options.hpp"
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::detail {

/// Writes it anew, where there is a log folder. A disk that is full loses it, not the job.
void write_attempt(const agent_options& options, const json::object& attempt);

}  // namespace parx::detail
