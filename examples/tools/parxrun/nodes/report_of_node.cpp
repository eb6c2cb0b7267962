#include "tools/parxrun/nodes/report_of_node.hpp"

#include <utility>

#include "tools/parxrun/ranks/missing_instructions.hpp"
#include <parx/core/stopped.hpp>

namespace parx::inline PARX_ABI::detail {

int code_of_failure(const node_ranks& ranks) {
  for (const rank_process& each : ranks.ranks()) {
    if (each.ended && ranks.end_of(each).failed_by_itself()) return each.ended->shell_code();
  }
  return 1;
}

int code_of_ranks(const node_ranks& ranks, on_loss losses) {
  int failed = 0;
  bool any_success = false;
  bool any_saved = false;
  for (const rank_process& each : ranks.ranks()) {
    any_success |= each.ended->success();
    any_saved |= each.ended->has_saved();
    if (failed == 0 && !each.ended->has_saved()) failed = each.ended->shell_code();
  }
  const bool goes_on = losses == on_loss::go_on;
  if (goes_on && any_success) return 0;
  if (failed != 0 && !(goes_on && any_saved)) return failed;
  return any_saved ? stopped_exit_code : 0;
}

node_report report_of(node_ranks& ranks, const failure_folder& failures, const std::string& node,
                      const std::vector<std::string>& command, const environment& env) {
  ranks.read_logs();
  node_report report{.node = node};
  bool all_succeeded = true;
  for (const rank_process& each : ranks.ranks()) {
    rank_end end = ranks.end_of(each);
    all_succeeded &= end.status.success();
    if (end.failed_by_itself() && report.reason.empty()) {
      report.reason = missing_instructions(end.status, command, env);
    }
    report.ranks.push_back(std::move(end));
  }
  report.recorder = failures.recordings();
  if (all_succeeded) failures.remove_after_success();
  return report;
}

}  // namespace parx::detail
