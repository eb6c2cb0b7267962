// take_order: what a parxrun that was started by ssh is to do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/parxrun/ssh/ssh_start.hpp"

namespace parx::inline PARX_ABI::detail {

/// The order, where this parxrun was started with agent_flag alone: reads it from standard input,
/// goes to its folder and sets its variables; what follows can be read from its `input`. Throws
/// usage_error where the folder is missing or standard input is something else.
[[nodiscard]] std::optional<agent_order> take_order(const std::vector<std::string>& words);

}  // namespace parx::detail
