// job_report: what the first node's parxrun prints of a job over several nodes that has not ended
// well. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/launch/detail/failure_report.hpp>
#include <parx/launch/detail/node_report.hpp>
#include <parx/launch/detail/verdict.hpp>

namespace parx::inline PARX_ABI::detail {

/// How the last generation of a job has ended.
struct job_end {
  std::vector<node_report> reports;  ///< of the nodes that could send one
  std::string command;               ///< of the ranks; empty where no node has come
  std::string loss;                  ///< why a node is not among them; empty: none was lost
  /// The first reason, where there are no reports: a sentence, or how where it was `told`.
  std::string why;
  bool told = false;                 ///< somebody has told a parxrun to end the job
  std::vector<std::string> unheard;  ///< the nodes that have sent no report of their ranks
  int code = 0;
};

/// The headline where the cause blames another rank. The flight recorders of other nodes are not
/// read.
[[nodiscard]] inline std::string divergence_of(const verdict& found,
                                               const std::vector<rank_end>& ends) {
  if (found.blamed < 0) return {};
  if (std::string text = early_exit_text(found, ends); !text.empty()) return text;
  return blame_text(*ends[found.cause].record, found.blamed);
}

/// That all ranks of these nodes have saved their work; of others nothing is known.
[[nodiscard]] inline std::string saved_text(const std::vector<node_report>& reports,
                                            const std::vector<std::string>& unheard) {
  if (unheard.empty()) return "; the ranks have saved their work (exit code 75)";
  std::vector<std::string> names;
  for (const node_report& each : reports) names.push_back(each.node);
  return formatted("; the ranks on {} have saved their work (exit code 75), of those on {} nothing "
                   "is known",
                   joined_text(names, ", "), joined_text(unheard, ", "));
}

/// Empty for a job that succeeded.
[[nodiscard]] inline std::string report_text(const job_end& end) {
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
