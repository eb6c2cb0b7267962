#include "tools/parx_slurm/logs/ended_tasks.hpp"

#include <parx/core/parse_number.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

std::optional<ended_tasks> ended_tasks_of(std::string_view line) {
  constexpr std::string_view begin = "srun: error: ";
  if (!line.starts_with(begin)) return std::nullopt;
  for (const std::string_view word : {": task ", ": tasks "}) {
    const auto at = line.find(word);
    const auto end = at == line.npos ? at : line.find(": ", at + word.size());
    if (end == line.npos) continue;
    ended_tasks found{.node = std::string(line.substr(begin.size(), at - begin.size())),
                      .tasks = std::string(line.substr(at + word.size(), end - at - word.size())),
                      .ranges = {},
                      .how = std::string(line.substr(end + 2))};
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
