// ended_tasks: what srun says of tasks that have ended badly: "srun: error: n3: tasks 4-5: Killed".
// Pure.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

struct ended_tasks {
  std::string node;   ///< or several, "n[3-4]": then nobody knows which task is on which
  std::string tasks;  ///< "4-5,7"
  std::vector<std::pair<int, int>> ranges;  ///< of them, first and last
  std::string how;                          ///< "Exited with exit code 1"

  /// By SIGKILL, or a launcher says so of its ranks.
  [[nodiscard]] bool was_killed() const {
    return how.starts_with("Killed") || how == "Exited with exit code 137";
  }
  [[nodiscard]] bool has(int task) const {
    return std::any_of(ranges.begin(), ranges.end(), [task](const auto& each) {
      return each.first <= task && task <= each.second;
    });
  }
};

/// nullopt where a line does not say so.
[[nodiscard]] std::optional<ended_tasks> ended_tasks_of(std::string_view line);

}  // namespace parx::slurm
