// report_of_node: the report of a node's ranks once they have ended.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <parx/core/env.hpp>
#include <parx/launch/detail/failure_folder.hpp>
#include <parx/launch/detail/missing_instructions.hpp>
#include <parx/launch/detail/node_ranks.hpp>
#include <parx/launch/detail/node_report.hpp>

namespace parx::inline PARX_ABI::detail {

/// All of `ranks` have ended. Removes their flight recorders where all have succeeded.
[[nodiscard]] inline node_report report_of(node_ranks& ranks, const failure_folder& failures,
                                           const std::string& node,
                                           const std::vector<std::string>& command,
                                           const environment& env) {
  ranks.read_logs();
  node_report report{.node = node, .ranks = {}, .recorder = {}, .reason = {}};
  bool all_succeeded = true;
  for (const rank_process& each : ranks.ranks()) {
    const rank_end end = ranks.end_of(each);
    all_succeeded &= end.status.success();
    if (end.failed_by_itself() && report.reason.empty()) {
      report.reason = missing_instructions(end.status, command, env);
    }
    report.ranks.push_back({end, each.error_log, {each.last_lines.begin(), each.last_lines.end()}});
  }
  report.recorder = failures.recordings();
  if (all_succeeded) failures.remove_after_success();
  return report;
}

}  // namespace parx::detail
