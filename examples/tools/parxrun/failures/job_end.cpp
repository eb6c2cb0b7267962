#include "tools/parxrun/failures/job_end.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <iterator>

#include "tools/parxrun/failures/failure_report.hpp"
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

/// Who is to blame.
enum class blame { nobody, missing_nodes, all_ranks_alike, rank };

[[nodiscard]] blame blame_of(const job_end& end, const std::vector<rank_end>& ends) {
  if (end.code == 0 && !end.goes_on) return blame::nobody;
  if (!end.told && !end.loss.empty()) return blame::missing_nodes;
  if (end.told || all_have_saved(end.reports) || !any_failed_by_itself(ends)) return blame::nobody;
  return common_answer(ends, end.command).empty() ? blame::rank : blame::all_ranks_alike;
}

/// The headline where the cause blames another rank.
[[nodiscard]] std::string divergence_of(const job_end& end, const verdict& found,
                                        const std::vector<rank_end>& ends) {
  if (!end.divergence.empty() || found.blamed < 0) return end.divergence;
  if (std::string text = early_exit_text(found, ends); !text.empty()) return text;
  return blame_text(*ends[found.cause].record, found.blamed);
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

}  // namespace

std::string report_text(const job_end& end) {
  if (end.code == 0 || end.goes_on) return {};
  const std::vector<rank_end> ends = ends_of(end.reports);
  const std::string saved = all_have_saved(end.reports) ? saved_text(end.reports, end.unheard) : "";
  switch (blame_of(end, ends)) {
    case blame::missing_nodes:
      return formatted("parxrun: {}{}\n  command   {}\n  parxrun exits with code {}\n", end.loss,
                       saved, end.command, end.code);
    case blame::nobody:
      return formatted("parxrun: {}{}{}{}{}\n", how_it_ended(end), end.command.empty() ? "" : ": ",
                       end.command, saved, end.killed);
    case blame::all_ranks_alike:
      return common_answer(ends, end.command);
    case blame::rank:
      break;
  }
  const verdict found = judge(ends);
  const node_report& report = report_with(end.reports, ends[found.cause].rank);
  return failure_report({.command = end.command,
                         .cause = ends[found.cause],
                         .ends = ends,
                         .recorder = report.recorder,
                         .divergence = divergence_of(end, found, ends),
                         .reason = report.reason,
                         .node = end.reports.size() > 1 ? report.node : std::string()});
}

job_outcome outcome_of(const job_end& end) {
  const std::vector<rank_end> ends = ends_of(end.reports);
  job_outcome outcome{.generation = end.generation,
                      .restarts = end.restarts,
                      .goes_on = end.goes_on,
                      .code = end.code,
                      .world_size = end.world_size};
  switch (blame_of(end, ends)) {
    case blame::missing_nodes:
      outcome.has_failed = true;
      outcome.node = end.lost_node;
      outcome.why = end.loss;
      break;
    case blame::nobody:
      if (end.code != 0 || end.goes_on) outcome.why = how_it_ended(end);
      break;
    case blame::all_ranks_alike:
      outcome.why = "all ranks ended " + to_string(ends.front().status);
      break;
    case blame::rank: {
      const verdict found = judge(ends);
      const rank_end& cause = ends[found.cause];
      outcome.has_failed = true;
      outcome.rank = cause.rank;
      outcome.why = cause_text(cause);
      if (const std::string text = divergence_of(end, found, ends); !text.empty()) {
        outcome.told_by = cause.rank;
        outcome.why = text;
        if (found.blamed >= 0) outcome.rank = found.blamed;
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
