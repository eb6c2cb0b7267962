#include "tools/parxrun/failures/failure_report.hpp"

#include <map>

#include "tools/common/rank_list.hpp"
#include "tools/common/exit_status.hpp"
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

std::string common_answer(const std::vector<rank_end>& ends, std::string_view command) {
  for (const rank_end& each : ends) {
    if (!each.failed_by_itself() || !each.is_silent || each.status.signal != 0) return {};
    if (each.record) return {};
    if (each.status.code != ends.front().status.code) return {};
  }
  return formatted("parxrun: {} ended with exit code {}: {}\n",
                   ends.size() == 1 ? "the rank" : formatted("all {} ranks", ends.size()),
                   ends.front().status.code, command);
}

std::string blame_text(const failure_record& record, int blamed) {
  std::string where = record.operation.empty() ? "" : " in " + record.operation;
  if (record.sequence > 0) where += formatted(" #{}", record.sequence);
  if (!record.group.empty()) where += formatted(" on group \"{}\"", record.group);
  switch (record.kind()) {
    case failure_kind::lost_peer:
      return formatted("rank {} was lost by rank {}{}", blamed, record.rank, where);
    case failure_kind::accuses:
      if (record.code == errc::mismatch) {
        return formatted("rank {} and rank {} do not agree{}", blamed, record.rank, where);
      }
      return formatted("rank {} did not come or did not go on while rank {} waited for it{}",
                       blamed, record.rank, where);
    case failure_kind::own:
    case failure_kind::told:
      break;
  }
  return formatted("rank {} made rank {} end{}", blamed, record.rank, where);
}

std::string early_exit_text(const verdict& found, const std::vector<rank_end>& ends) {
  for (const rank_end& each : ends) {
    if (each.rank != found.blamed || !each.status.success()) continue;
    return formatted("rank {} ended with exit code 0 while others still waited for it", each.rank);
  }
  return {};
}

std::string cause_text(const rank_end& cause) {
  return formatted("{}, {:.1f} s after the start", to_string(cause.status), cause.seconds);
}

namespace {

/// How the ranks beside the cause have ended: "; ranks 0,2: exit code 1; rank 3: ...".
[[nodiscard]] std::string others_text(const job_failure& failure) {
  std::map<std::string, std::vector<int>> others;
  for (const rank_end& end : failure.ends) {
    if (end.rank == failure.cause.rank) continue;
    const char* const why = end.was_signalled ? ", after parxrun ended the job" : "";
    others[to_string(end.status) + why].push_back(end.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : others) {
    text += formatted("; {} {}: {}", ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), how);
  }
  return text;
}

}  // namespace

std::string failure_report(const job_failure& failure) {
  const rank_end& cause = failure.cause;
  const bool is_own = cause.record && cause.record->kind() == failure_kind::own;
  const std::string ends = formatted("rank {} of {} failed: {}{}", cause.rank, failure.ends.size(),
                                     cause_text(cause), others_text(failure));
  std::string text =
      formatted("parxrun: {}\n", failure.divergence.empty() ? ends : failure.divergence);
  const auto field = [&](std::string_view name, std::string_view value) {
    text += formatted("  {:<9} {}\n", name, value);
  };
  if (!failure.divergence.empty()) field("told by", ends);
  if (!failure.reason.empty()) field("reason", failure.reason);
  if (!failure.node.empty()) field("node", failure.node);
  field("command", failure.command);
  if (!cause.log_file.empty()) field("log", cause.log_file);
  // A Python rank may have written its error to its TORCHELASTIC_ERROR_FILE alone.
  if (cause.record && cause.is_silent) field("error", cause.record->text);
  const bool are_in_sight = cause.is_in_sight && failure.node.empty();
  if (!cause.last_lines.empty() && !are_in_sight) {
    text += "  its last lines on standard error:\n";
    for (const std::string& line : cause.last_lines) text += "    | " + line + "\n";
  }
  // The last operations say nothing of a mistake that needed no other rank.
  if (!failure.recorder.empty() && !is_own) {
    field("recorder", failure.recorder + " (read it by: parx_doctor recorder DIR)");
  }
  return text;
}

}  // namespace parx::detail
