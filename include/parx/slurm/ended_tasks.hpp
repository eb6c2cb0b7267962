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
#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

struct ended_tasks {
  std::string node;   ///< or several, "n[3-4]": then nobody knows which task is on which
  std::string tasks;  ///< "4-5,7"
  std::vector<std::pair<int, int>> ranges;  ///< of them, first and last
  std::string how;                          ///< "Exited with exit code 1"
  std::string line;

  [[nodiscard]] bool has(int task) const {
    return std::any_of(ranges.begin(), ranges.end(), [task](const auto& each) {
      return each.first <= task && task <= each.second;
    });
  }
};

/// nullopt where a line does not say so.
[[nodiscard]] inline std::optional<ended_tasks> ended_tasks_of(std::string_view line) {
  constexpr std::string_view begin = "srun: error: ";
  if (!line.starts_with(begin)) return std::nullopt;
  for (const std::string_view word : {": task ", ": tasks "}) {
    const auto at = line.find(word);
    const auto end = at == line.npos ? at : line.find(": ", at + word.size());
    if (end == line.npos) continue;
    ended_tasks found{.node = std::string(line.substr(begin.size(), at - begin.size())),
                      .tasks = std::string(line.substr(at + word.size(), end - at - word.size())),
                      .ranges = {},
                      .how = std::string(line.substr(end + 2)),
                      .line = std::string(line)};
    for (const std::string_view part : parx::detail::split_at(found.tasks, ',')) {
      using parx::detail::parse_number;
      const auto dash = std::min(part.find('-'), part.size());
      const auto first = parse_number<int>(part.substr(0, dash));
      const auto last = dash == part.size() ? first : parse_number<int>(part.substr(dash + 1));
      if (first && last) found.ranges.emplace_back(*first, *last);
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace parx::slurm
