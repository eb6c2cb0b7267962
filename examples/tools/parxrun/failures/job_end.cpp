#include "tools/parxrun/failures/job_end.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <iterator>
#include <map>

#include "tools/common/exit_status.hpp"
#include "tools/common/rank_list.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI::detail {

node_report shortened(node_report report) {
  constexpr std::size_t longest_line = 1000;
  constexpr std::size_t most_lines = 4 << 20;  // bytes of all
  const std::size_t most = most_lines / std::max<std::size_t>(report.ranks.size(), 1);
  for (rank_end& each : report.ranks) {
    auto first = each.last_lines.end();
    for (std::size_t bytes = 0; first != each.last_lines.begin(); --first) {
      std::string& line = *std::prev(first);
      if (line.size() > longest_line) line.resize(longest_line);
      bytes += line.size();
      if (bytes > most) break;
    }
    each.last_lines.erase(each.last_lines.begin(), first);
  }
  return report;
}

bool all_have_saved(const std::vector<node_report>& reports) {
  return !reports.empty() && std::all_of(reports.begin(), reports.end(), [](const auto& node) {
    return !node.ranks.empty() && std::all_of(node.ranks.begin(), node.ranks.end(),
                                              [](auto& each) { return each.status.has_saved(); });
  });
}

bool any_failed_by_itself(const std::vector<rank_end>& ends) {
  return std::any_of(ends.begin(), ends.end(),
                     [](const rank_end& each) { return each.failed_by_itself(); });
}

std::string killed_text(const std::vector<rank_end>& ends,
                        std::optional<std::chrono::milliseconds> grace) {
  std::vector<int> killed;
  for (const rank_end& each : ends) {
    if (each.status.signal == SIGKILL) killed.push_back(each.rank);
  }
  if (killed.empty()) return {};
  return formatted("; rank {} ", rank_list(killed)) +
         (grace ? formatted("did not end within {:.1f} s and was killed",
                            std::chrono::duration<double>(*grace).count())
                : "was killed on the second signal");
}

std::string losses_text(const std::vector<rank_end>& ends) {
  std::string text;
  for (const rank_end& each : ends) {
    if (each.status.success()) continue;
    text += formatted("parxrun: rank {} was lost ({}); others have gone on to the end\n", each.rank,
                      to_string(each.status));
  }
  return text;
}

std::vector<rank_end> ends_of(const std::vector<node_report>& reports) {
  std::vector<rank_end> ends;
  for (const node_report& report : reports) {
    ends.insert(ends.end(), report.ranks.begin(), report.ranks.end());
  }
  std::sort(ends.begin(), ends.end(),
            [](const rank_end& a, const rank_end& b) { return a.rank < b.rank; });
  return ends;
}

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

std::string early_exit_text(const judged_end& judged) {
  for (const rank_end& each : judged.ends) {
    if (each.rank != judged.found.blamed || !each.status.success()) continue;
    return formatted("rank {} ended with exit code 0 while others still waited for it", each.rank);
  }
  return {};
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

[[nodiscard]] blame blame_of(const job_end& end, const std::vector<rank_end>& ends) {
  if (end.code == 0 && !end.goes_on) return blame::nobody;
  if (!end.told && !end.loss.empty()) return blame::missing_nodes;
  if (end.told || all_have_saved(end.reports) || !any_failed_by_itself(ends)) return blame::nobody;
  return common_answer(ends, end.command).empty() ? blame::rank : blame::all_ranks_alike;
}

/// The headline where the cause blames another rank.
[[nodiscard]] std::string divergence_of(const judged_end& judged) {
  const int blamed = judged.found.blamed;
  if (!judged.end.divergence.empty() || blamed < 0) return judged.end.divergence;
  if (std::string text = early_exit_text(judged); !text.empty()) return text;
  return blame_text(*judged.cause().record, blamed);
}

[[nodiscard]] const node_report& report_with(const std::vector<node_report>& reports, int rank) {
  return *std::find_if(reports.begin(), reports.end(), [&](const node_report& node) {
    return std::any_of(node.ranks.begin(), node.ranks.end(),
                       [&](const rank_end& each) { return each.rank == rank; });
  });
}

/// Why a job has ended for which nobody is to blame.
[[nodiscard]] std::string how_it_ended(const job_end& end) {
  return !end.told && !end.why.empty() ? "the job has ended: " + end.why
         : !end.why.empty()            ? "ended " + end.why
         : end.told                    ? "ended as asked"
                                       : "ended by its ranks";
}

/// How a rank has ended, and when.
[[nodiscard]] std::string cause_text(const rank_end& cause) {
  return formatted("{}, {:.1f} s after the start", to_string(cause.status), cause.seconds);
}

/// How the ranks beside the cause have ended: "; ranks 0,2: exit code 1; rank 3: ...".
[[nodiscard]] std::string others_text(const judged_end& judged) {
  std::map<std::string, std::vector<int>> others;
  for (const rank_end& end : judged.ends) {
    if (end.rank == judged.cause().rank) continue;
    const char* const why = end.was_signalled ? ", after parxrun ended the job" : "";
    others[to_string(end.status) + why].push_back(end.rank);
  }
  std::string text;
  for (const auto& [how, ranks] : others) {
    text += formatted("; {} {}: {}", ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), how);
  }
  return text;
}

/// What is said where a rank is the cause.
[[nodiscard]] std::string failure_text(const judged_end& judged) {
  const rank_end& cause = judged.cause();
  const std::vector<node_report>& reports = judged.end.reports;
  const node_report& report = report_with(reports, cause.rank);
  const std::string divergence = divergence_of(judged);
  const bool has_several_nodes = reports.size() > 1;
  const bool is_own = cause.record && cause.record->kind() == failure_kind::own;
  const std::string ends = formatted("rank {} of {} failed: {}{}", cause.rank, judged.ends.size(),
                                     cause_text(cause), others_text(judged));
  std::string text = formatted("parxrun: {}\n", divergence.empty() ? ends : divergence);
  const auto field = [&](std::string_view name, std::string_view value) {
    text += formatted("  {:<9} {}\n", name, value);
  };
  if (!divergence.empty()) field("told by", ends);
  if (!report.reason.empty()) field("reason", report.reason);
  if (has_several_nodes) field("node", report.node);
  field("command", judged.end.command);
  if (!cause.log_file.empty()) field("log", cause.log_file);
  // A Python rank may have written its error to its TORCHELASTIC_ERROR_FILE alone.
  if (cause.record && cause.is_silent) field("error", cause.record->text);
  const bool are_in_sight = cause.is_in_sight && !has_several_nodes;
  if (!cause.last_lines.empty() && !are_in_sight) {
    text += "  its last lines on standard error:\n";
    for (const std::string& line : cause.last_lines) text += "    | " + line + "\n";
  }
  // The last operations say nothing of a mistake that needed no other rank.
  if (!report.recorder.empty() && !is_own) {
    field("recorder", report.recorder + " (read it by: parx_doctor recorder DIR)");
  }
  return text;
}

}  // namespace

judged_end::judged_end(const job_end& of)
    : end(of), ends(ends_of(of.reports)), whose(blame_of(of, ends)) {
  if (whose == blame::rank) found = judge(ends);
}

std::string report_text(const judged_end& judged) {
  const job_end& end = judged.end;
  if (end.code == 0 || end.goes_on) return {};
  const std::string saved = all_have_saved(end.reports) ? saved_text(end.reports, end.unheard) : "";
  switch (judged.whose) {
    case blame::missing_nodes:
      return formatted("parxrun: {}{}\n  command   {}\n  parxrun exits with code {}\n", end.loss,
                       saved, end.command, end.code);
    case blame::nobody:
      return formatted("parxrun: {}{}{}{}{}\n", how_it_ended(end), end.command.empty() ? "" : ": ",
                       end.command, saved, end.killed);
    case blame::all_ranks_alike:
      return common_answer(judged.ends, end.command);
    case blame::rank:
      break;
  }
  return failure_text(judged);
}

job_outcome outcome_of(const judged_end& judged) {
  const job_end& end = judged.end;
  job_outcome outcome{.generation = end.generation,
                      .restarts = end.restarts,
                      .goes_on = end.goes_on,
                      .code = end.code,
                      .world_size = end.world_size};
  switch (judged.whose) {
    case blame::missing_nodes:
      outcome.has_failed = true;
      outcome.node = end.lost_node;
      outcome.why = end.loss;
      break;
    case blame::nobody:
      if (end.code != 0 || end.goes_on) outcome.why = how_it_ended(end);
      break;
    case blame::all_ranks_alike:
      outcome.why = "all ranks ended " + to_string(judged.ends.front().status);
      break;
    case blame::rank: {
      const rank_end& cause = judged.cause();
      outcome.has_failed = true;
      outcome.rank = cause.rank;
      outcome.why = cause_text(cause);
      if (const std::string text = divergence_of(judged); !text.empty()) {
        outcome.told_by = cause.rank;
        outcome.why = text;
        if (judged.found.blamed >= 0) outcome.rank = judged.found.blamed;
      }
      for (const node_report& node : end.reports) {
        for (const rank_end& each : node.ranks) {
          if (each.rank != outcome.rank) continue;
          outcome.node = node.node;
          outcome.signal = each.was_signalled ? 0 : each.status.signal;
        }
      }
      break;
    }
  }
  return outcome;
}

}  // namespace parx::detail
