#include "tools/parxrun/nodes/job_report.hpp"

#include "tools/parxrun/failures/failure_report.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

std::string divergence_of(const verdict& found, const std::vector<rank_end>& ends) {
  if (found.blamed < 0) return {};
  if (std::string text = early_exit_text(found, ends); !text.empty()) return text;
  return blame_text(*ends[found.cause].record, found.blamed);
}

namespace {

/// That all ranks of these nodes have saved their work; of others nothing is known.
std::string saved_text(const std::vector<node_report>& reports,
                       const std::vector<std::string>& unheard) {
  if (unheard.empty()) return "; the ranks have saved their work (exit code 75)";
  std::vector<std::string> names;
  for (const node_report& each : reports) names.push_back(each.node);
  return formatted(
      "; the ranks on {} have saved their work (exit code 75), of those on {} nothing "
      "is known",
      joined_text(names, ", "), joined_text(unheard, ", "));
}

}  // namespace

std::string report_text(const job_end& end) {
  if (end.code == 0) return {};
  const std::string& command = end.command;
  const std::vector<rank_end> ends = ends_of(end.reports);
  const bool any_failed = any_failed_by_itself(ends);
  const bool all_saved = all_have_saved(end.reports);
  const std::string saved = all_saved ? saved_text(end.reports, end.unheard) : "";
  if (!end.told && !end.loss.empty()) {
    const std::string rule(78, '=');
    return formatted("{}\nparxrun: {}{}\n  command   {}\n  parxrun exits with code {}\n{}\n", rule,
                     end.loss, saved, command, end.code, rule);
  }
  if (end.told || all_saved || !any_failed) {
    const std::string how = !end.told && !end.why.empty() ? "the job has ended: " + end.why
                            : !end.why.empty()            ? "ended " + end.why
                            : end.told                    ? "ended as asked"
                                                          : "ended by its ranks";
    return formatted("parxrun: {}{}{}{}\n", how, command.empty() ? "" : ": ", command, saved);
  }
  if (std::string text = common_answer(ends, command); !text.empty()) return text;
  const verdict found = judge(ends);
  const rank_end& cause = ends[found.cause];
  for (const node_report& report : end.reports) {
    for (const node_rank_end& each : report.ranks) {
      if (each.end.rank != cause.rank) continue;
      return failure_report({.command = command,
                             .cause = cause,
                             .ends = ends,
                             .log_file = each.log_file,
                             .last_lines = each.last_lines,
                             .recorder = report.recorder,
                             .divergence = divergence_of(found, ends),
                             .reason = report.reason,
                             .node = end.reports.size() > 1 ? report.node : std::string()});
    }
  }
  return {};
}

}  // namespace parx::detail
