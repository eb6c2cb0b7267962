// agents: the three kinds of parxrun, each of which is a class in the .cpp of its name. Each runs
// to its end and returns parxrun's exit code; run_ranks.hpp says what holds for all.
#pragma once

#include "tools/parxrun/agent_options.hpp"

namespace parx::inline PARX_ABI::detail {

/// All ranks of a job of this host alone.
[[nodiscard]] int run_agent(const agent_options& options);
/// The ranks of this node, of a job of several nodes or of one that is restarted. `options` has
/// nodes.
[[nodiscard]] int run_node_agent(const agent_options& options);
/// A job without ranks on this host. `options` has nodes.
[[nodiscard]] int run_keeper_process(const agent_options& options);

}  // namespace parx::detail
