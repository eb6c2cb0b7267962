#include "tools/parx_slurm/logs/log_culprit.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/parx_slurm/logs/ended_tasks.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

std::string name_of(const log_writer& writer) {
  if (!writer.rank) return {};
  return formatted("rank {}{}{}", *writer.rank, writer.node.empty() ? "" : " on ", writer.node);
}

}  // namespace detail

namespace {

/// What parxrun's report says of the cause.
struct reported_cause {
  log_writer writer;  ///< no rank: a node was lost, or no rank has begun
  std::string how;
  std::string source;
};

/// Of the last report among parxrun's lines; nullopt where none blames a rank or a node.
[[nodiscard]] std::optional<reported_cause> reported_cause_in(
    const std::vector<std::string>& lines) {
  std::optional<reported_cause> cause;
  bool is_of_teller = false;  // a report's node is that of the rank which blames the other
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string_view line = lines[i];
    constexpr std::string_view begin = "parxrun: ";
    constexpr std::string_view node = "  node      ";
    if (cause && cause->writer.rank && !is_of_teller && line.starts_with(node)) {
      cause->writer.node = line.substr(node.size());
    }
    if (!line.starts_with(begin)) continue;
    line.remove_prefix(begin.size());
    const bool has_fields = i + 1 < lines.size() && lines[i + 1].starts_with("  ");
    if (!detail::reason_of_restart(lines[i]).empty() || detail::begins_generation(lines[i])) {
      cause.reset();
    } else if (line.starts_with("rank ") && has_fields) {
      const std::string_view rest = line.substr(std::min(line.find(' ', 5), line.size()));
      const auto failed = rest.find(" failed: ");
      is_of_teller = failed == rest.npos;
      cause = {.writer = {.rank = detail::number_behind(line, "rank "), .node = {}},
               .how = is_of_teller ? std::string(rest)  // " was lost by rank 0 in barrier"
                                   : formatted(": {}", rest.substr(failed + 9)),
               .source = lines[i]};
    } else if (has_fields && (line.find(" was lost: ") != line.npos ||
                              line.find(" nodes came within ") != line.npos)) {
      cause = {.writer = {}, .how = std::string(line), .source = lines[i]};
    }
  }
  return cause;
}

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
  const auto blame = [&](const log_writer& writer, const std::string& how,
                         const std::string& source) {
    log_culprit culprit{
        .writer = writer, .who = detail::name_of(writer), .how = how, .source = source};
    // What a rank has written before a SIGKILL is not its cause.
    const bool was_killed = how.find("SIGKILL") != how.npos || how.find(": Killed") != how.npos;
    const auto error = std::find_if(errors.begin(), errors.end(), [&](const log_error& each) {
      return !was_killed && !each.is_echo && each.line.writer.rank == writer.rank;
    });
    if (error != errors.end()) culprit.error = *error;
    if (!culprit.error) culprit.last = summary.errors.last_of(*writer.rank);
    return culprit;
  };
  if (const auto cause = reported_cause_in(summary.launcher_lines)) {
    if (cause->writer.rank) {
      return blame(known(cause->writer.rank, cause->writer.node), cause->how, cause->source);
    }
    log_culprit culprit{.writer = {}, .who = {}, .how = cause->how, .source = cause->source};
    culprit.last =
        summary.errors.last_of(std::string(detail::text_between(cause->how, "node ", " ")));
    return culprit;
  }
  const auto of_error = [&](const log_error& error) {
    const log_writer writer = known(error.line.writer.rank, error.line.writer.node);
    return log_culprit{.writer = writer,
                       .who = detail::name_of(writer),
                       .how = {},
                       .source = error.line.text,
                       .error = error};
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
    if (is_rank && lost >= 0) return blame(known(lost), how, tasks->line);
    if (is_rank && task) return blame(known(*task, tasks->node), how, tasks->line);
    return log_culprit{
        .writer = {},
        .who = formatted("{} {} on {}", task ? "task" : "tasks", tasks->tasks, tasks->node),
        .how = how,
        .source = tasks->line};
  }
  if (lost >= 0) {
    const log_writer teller = known(echo->line.writer.rank, echo->line.writer.node);
    const std::string name = detail::name_of(teller);
    return blame(known(lost), formatted(" was lost, says {}", name.empty() ? "another rank" : name),
                 echo->line.text);
  }
  return errors.empty() ? std::nullopt : std::optional(of_error(errors[0]));
}

}  // namespace parx::slurm
