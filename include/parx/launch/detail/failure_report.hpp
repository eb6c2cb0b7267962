// failure_report: what parxrun prints when a job fails: which rank caused it, how that rank ended,
// its last lines of output, and how the others ended. Pure.
//
// The first rank to end is not always the cause: a rank that lost its peer may end before the
// peer's own end is noticed, and a rank that timed out waited for another one
// (divergence_text.hpp).
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/launch/detail/child_process.hpp>

namespace parx::inline PARX_ABI::detail {

/// "0-2,5" for {0, 1, 2, 5}; `ranks` must be in ascending order.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += formatted("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += formatted("{}{}", last == i + 1 ? "," : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

struct rank_end {
  int rank = 0;
  pid_t pid = 0;
  exit_status status;
  bool was_signalled = false;  ///< parxrun had signalled it before it ended
  double seconds = 0;     ///< from the start of the job
  bool echoes = false;    ///< its last lines report the failure of another rank
  bool accuses = false;   ///< its last lines report that others did not call what it called
  bool is_silent = false;  ///< it is known to have written nothing to standard error

  [[nodiscard]] bool failed_by_itself() const noexcept {
    return !status.success() && !status.has_saved() && !was_signalled;
  }
};

/// Whether a line of a rank's standard error is about the failure of another rank.
[[nodiscard]] inline bool is_echo(std::string_view line) {
  for (const std::string_view words :
       {"because another rank failed first", "lost rank ",
        "was refused because of an earlier failure", "the job's store is gone",
        "has ended without taking part"}) {
    if (line.find(words) != line.npos) return true;
  }
  return false;
}

/// Whether such a line is about what other ranks did or did not call.
[[nodiscard]] inline bool is_accusation(std::string_view line) {
  for (const std::string_view words :
       {"timed out waiting for", "called different operations", "lost rank "}) {
    if (line.find(words) != line.npos) return true;
  }
  return false;
}

/// The rank that a line reports as lost; -1 where it reports none.
[[nodiscard]] inline int lost_rank(std::string_view line) {
  for (const std::string_view words : {"lost rank ", "failed first: rank "}) {
    const std::size_t at = line.find(words);
    if (at == line.npos) continue;
    const std::string_view rest = line.substr(at + words.size());
    int rank = -1;
    const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
    const std::string_view after = rest.substr(static_cast<std::size_t>(parsed.ptr - rest.data()));
    if (parsed.ec != std::errc() || rank < 0) continue;
    // "failed first: rank 3 called ..." reports a mismatch, not a loss.
    if (words == "lost rank " || after.starts_with(", which keeps the job's store")) return rank;
  }
  return -1;
}

/// The rank that caused the failure, as an index into `ends`; at least one rank must have failed by
/// itself. Prefers a rank whose last lines are about its own failure to one that accuses or echoes
/// others, then one that a signal killed to one that returned, then the one that ended first.
[[nodiscard]] inline std::size_t find_cause(const std::vector<rank_end>& ends) {
  const auto less_to_blame = [](const rank_end& a, const rank_end& b) {
    if (a.failed_by_itself() != b.failed_by_itself()) return b.failed_by_itself();
    if (a.echoes != b.echoes) return a.echoes;
    if (a.accuses != b.accuses) return a.accuses;
    if ((a.status.signal != 0) != (b.status.signal != 0)) return b.status.signal != 0;
    return a.seconds > b.seconds;
  };
  return static_cast<std::size_t>(
      std::distance(ends.begin(), std::max_element(ends.begin(), ends.end(), less_to_blame)));
}

/// What is said instead of the report where all ranks have returned the same code in silence: that
/// is the program's answer (of `grep`, or a check that found something), not a crash. Else empty.
[[nodiscard]] inline std::string verdict_text(const std::vector<rank_end>& ends,
                                              std::string_view command) {
  for (const rank_end& each : ends) {
    if (!each.failed_by_itself() || !each.is_silent || each.status.signal != 0) return {};
    if (each.status.code != ends.front().status.code) return {};
  }
  return formatted("parxrun: {} ended with exit code {}: {}\n",
                   ends.size() == 1 ? "the rank" : formatted("all {} ranks", ends.size()),
                   ends.front().status.code, command);
}

/// The content of the report. `ends` are in rank order and include the cause.
struct job_failure {
  std::string command;
  rank_end cause;
  std::vector<rank_end> ends;
  std::string log_file;                 ///< of the cause; empty when there is none
  std::vector<std::string> last_lines;  ///< of its standard error
  std::string recorder = {};    ///< directory of the flight recorders; empty when there is none
  std::string divergence = {};  ///< headline in place of the cause, where that only accuses others
  std::string reason = {};      ///< why the cause was killed, where that is known
};

[[nodiscard]] inline std::string failure_report(const job_failure& failure) {
  const std::string rule(78, '=');
  const std::string cause = formatted("rank {} of {} failed: {}, {:.1f} s after the start",
                                        failure.cause.rank, failure.ends.size(),
                                        to_string(failure.cause.status), failure.cause.seconds);
  std::string text =
      formatted("{}\nparxrun: {}\n", rule, failure.divergence.empty() ? cause : failure.divergence);
  const auto field = [&](std::string_view name, std::string_view value) {
    text += formatted("  {:<9} {}\n", name, value);
  };
  if (!failure.divergence.empty()) field("told by", cause);
  if (!failure.reason.empty()) field("reason", failure.reason);
  field("command", failure.command);
  field("pid", std::to_string(failure.cause.pid));
  if (!failure.log_file.empty()) field("log", failure.log_file);
  if (!failure.last_lines.empty()) {
    text += "  its last lines on standard error:\n";
    for (const std::string& line : failure.last_lines) text += "    | " + line + "\n";
  }
  std::map<std::string, std::vector<int>> others;
  for (const rank_end& end : failure.ends) {
    if (end.rank == failure.cause.rank) continue;
    const char* const why = end.was_signalled ? ", after parxrun ended the job" : "";
    others[to_string(end.status) + why].push_back(end.rank);
  }
  for (const auto& [how, ranks] : others) {
    text +=
        formatted("  {} {}: {}\n", ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), how);
  }
  if (!failure.recorder.empty()) {
    field("recorder", failure.recorder + " (read it by: parx_doctor recorder DIR)");
  }
  return text +
         formatted("  parxrun exits with code {}\n{}\n", failure.cause.status.shell_code(), rule);
}

}  // namespace parx::detail
