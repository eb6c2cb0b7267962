#include "tools/parx_slurm/logs/log_text.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include "tools/parx_slurm/logs/log_culprit.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::slurm {

std::vector<std::string> culprit_lines(const log_summary& summary) {
  const auto culprit = culprit_of(summary);
  if (!culprit) return {};
  const std::size_t errors = summary.errors.error_lines();
  std::vector<std::string> lines;
  const auto add = [&](const log_errors::lines& some) {
    for (const std::string& each : some) lines.push_back("    " + each);
  };
  if (culprit->error) {
    const log_error& error = *culprit->error;
    lines.push_back(
        formatted("first error,{}{}{} {} line {}{}:", culprit->who.empty() ? "" : " ", culprit->who,
                  culprit->who.empty() ? "" : ",", error.line.file, error.line.number,
                  errors < 2 ? std::string() : formatted(" ({} more follow)", errors - 1)));
    add(error.before);
    lines.push_back("  > " + error.line.text);
    add(error.after);
    return lines;
  }
  lines.push_back(formatted("first error, {}{}", culprit->who, culprit->how));
  if (!culprit->last.empty()) {
    lines.push_back(culprit->writer.rank ? "  its last lines:" : "  the last lines of its ranks:");
    add(culprit->last);
  } else if (culprit->writer.rank) {
    lines.push_back("  no line of the logs is known to be of it");
  }
  if (errors > 0) {
    lines.push_back(errors == 1 ? "  one more line tells of an error"
                                : formatted("  {} more lines tell of errors", errors));
  }
  return lines;
}

std::string writers_text(const log_summary& summary) {
  const std::size_t count = summary.ranks.size();
  if (summary.world_size > 0) {
    return formatted("{} of {} have written a line", count, summary.world_size);
  }
  return count == 1 ? "one rank has written a line"
                    : formatted("{} ranks have written a line", count);
}

std::vector<std::string> earlier_lines(const log_summary& summary) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < summary.survived.size(); ++i) {
    lines.push_back(formatted("earlier, {}: the ranks were started again (restart {})",
                              summary.survived[i], i + 1));
  }
  if (const auto& error = summary.earlier_error) {
    lines.push_back(formatted("  its first error, {} line {}:", error->file, error->number));
    lines.push_back("  > " + error->text);
  }
  return lines;
}

std::string end_text(const log_summary& summary, std::string_view state) {
  const bool ended_well = state == "COMPLETED";
  if (culprit_of(summary)) {
    return ended_well ? "the job ended well all the same, says Slurm" : std::string();
  }
  const bool restarted = !summary.survived.empty();
  if (summary.lines == 0 && !ended_well) return "the log is empty";
  std::string text = restarted ? "no line since then tells of an error"
                               : formatted("no line of {} tells of an error", summary.lines);
  if (ended_well) {
    text += ": the job ended well";
  } else if (state == "RUNNING") {
    text += ": the job still runs";
  } else if (restarted && state.empty()) {
    text += ": the job ended well, or still runs";
  }
  return text;
}

std::string signal_text(const log_summary& summary, std::string_view state) {
  static constexpr std::array<std::string_view, 5> of_slurm{"TIMEOUT", "CANCELLED", "PREEMPTED",
                                                            "DEADLINE", "NODE_FAIL"};
  const bool by_slurm = std::any_of(of_slurm.begin(), of_slurm.end(),
                                    [&](std::string_view each) { return state.starts_with(each); });
  const auto culprit = culprit_of(summary);
  if (culprit && !by_slurm && culprit->was_killed) {
    return "SIGKILL comes from outside the program: its memory did not suffice (sacct then says "
           "OUT_OF_MEMORY, or dmesg on the node names the process): ask for more --mem or start "
           "fewer ranks a node; or somebody's kill -9";
  }
  return meaning_of_signal(summary.slurm_lines);
}

std::string no_log_text(const std::vector<std::string>& looked) {
  return formatted(
      "looked at {}. parx_slurm run and srun write to the terminal alone; to keep that: "
      "parx_slurm run ... 2>&1 | tee train.log, and then parx_slurm logs train.log",
      joined_text(looked));
}

}  // namespace parx::slurm
