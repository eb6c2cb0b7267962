#include "tools/parx_slurm/logs/log_culprit.hpp"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/ended_tasks.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace {

[[nodiscard]] std::vector<ended_tasks> ended_tasks_in(const std::vector<std::string>& slurm_lines) {
  std::vector<ended_tasks> found;
  for (const std::string& line : slurm_lines) {
    if (auto each = ended_tasks_of(line)) found.push_back(std::move(*each));
  }
  return found;
}

/// The one to blame: that of the rank which others have lost, else the first that a signal has
/// ended but srun's own, else the first.
[[nodiscard]] std::optional<ended_tasks> first_ended(const std::vector<ended_tasks>& all,
                                                     int lost) {
  if (all.empty()) return std::nullopt;
  const auto pick = [&](auto&& is_it) { return std::find_if(all.begin(), all.end(), is_it); };
  auto found = lost < 0 ? all.end() : pick([&](const auto& each) { return each.has(lost); });
  if (found == all.end() && lost < 0) {
    found = pick([](const auto& each) {
      return !each.how.starts_with("Exited") && !each.how.starts_with("Terminated");
    });
    if (found == all.end()) found = all.begin();
  }
  return found == all.end() ? std::nullopt : std::optional(*found);
}

}  // namespace

std::optional<log_culprit> culprit_of(const log_summary& summary) {
  const auto& errors = summary.errors.found();
  const auto known = [&](std::optional<int> rank, std::string node = {}) {
    if (rank && node.empty()) node = summary.nodes.node_of(*rank);
    return log_writer{.rank = rank, .node = node};
  };
  const auto blame = [&](const log_writer& writer, const std::string& how, bool was_killed) {
    log_culprit culprit{
        .writer = writer, .who = name_of(writer), .how = how, .was_killed = was_killed};
    // What a rank has written before a SIGKILL is not its cause.
    const auto error = std::find_if(errors.begin(), errors.end(), [&](const log_error& each) {
      return !was_killed && !each.is_echo && each.line.writer.rank == writer.rank;
    });
    if (error != errors.end()) culprit.error = *error;
    if (!culprit.error) culprit.last = summary.errors.last_of(*writer.rank);
    const auto recorded = summary.recorded_lines.find(*writer.rank);
    if (!culprit.error && culprit.last.empty() && recorded != summary.recorded_lines.end()) {
      culprit.last = recorded->second;
    }
    return culprit;
  };
  if (const auto& outcome = summary.outcome; outcome && outcome->has_failed) {
    if (outcome->rank < 0) {
      return log_culprit{.writer = {},
                         .who = {},
                         .how = outcome->why,
                         .last = summary.errors.last_of(outcome->node)};
    }
    log_culprit culprit =
        blame(known(outcome->rank, outcome->node), ": " + outcome->why, outcome->signal == SIGKILL);
    if (outcome->told_by >= 0) {  // its words name the ranks
      culprit.who.clear();
      culprit.how = outcome->why;
    }
    return culprit;
  }
  const auto of_error = [&](const log_error& error) {
    const log_writer writer = known(error.line.writer.rank, error.line.writer.node);
    return log_culprit{.writer = writer, .who = name_of(writer), .how = {}, .error = error};
  };
  if (const log_error* const own = summary.errors.first_own()) return of_error(*own);
  const auto echo = std::find_if(errors.begin(), errors.end(),
                                 [](const log_error& each) { return each.lost >= 0; });
  const int lost = echo == errors.end() ? -1 : echo->lost;
  // A task is a rank where srun has started the ranks itself.
  const bool is_rank = summary.nodes.tasks_are_ranks();
  const auto tasks = first_ended(ended_tasks_in(summary.slurm_lines), is_rank ? lost : -1);
  // Else its exit code is that of a launcher, which says less than the ranks.
  if (tasks && (is_rank || lost < 0 || !tasks->how.starts_with("Exited"))) {
    const auto task = parx::detail::parse_number<int>(tasks->tasks);
    const std::string how = formatted(": {}, says srun", tasks->how);
    const bool was_killed = tasks->was_killed();
    if (is_rank && lost >= 0) return blame(known(lost), how, was_killed);
    if (is_rank && task) return blame(known(*task, tasks->node), how, was_killed);
    return log_culprit{
        .writer = {},
        .who = formatted("{} {} on {}", task ? "task" : "tasks", tasks->tasks, tasks->node),
        .how = how,
        .was_killed = was_killed};
  }
  if (lost >= 0) {
    const log_writer teller = known(echo->line.writer.rank, echo->line.writer.node);
    const std::string name = name_of(teller);
    return blame(known(lost), formatted(" was lost, says {}", name.empty() ? "another rank" : name),
                 false);
  }
  return errors.empty() ? std::nullopt : std::optional(of_error(errors[0]));
}

}  // namespace parx::slurm
