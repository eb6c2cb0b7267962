// What parxrun prints when a job fails: who failed first, how, what it said last, and what became
// of the others. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <parx/launch/detail/child_process.hpp>

namespace parx::detail {

/// "0-2,5" for {0, 1, 2, 5}; `ranks` ascend.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("{}{}", last == i + 1 ? "," : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

struct rank_end {
  int rank = 0;
  pid_t pid = 0;
  exit_status status;
  bool was_told = false;  ///< parxrun had signalled it before it ended
  double seconds = 0;     ///< from the start of the job
};

/// Everything the report says. `ends` are in order of rank and hold the first failure too.
struct job_failure {
  std::string command;
  rank_end first;
  std::vector<rank_end> ends;
  std::string log_file;                 ///< of the first failure; empty when there is none
  std::vector<std::string> last_lines;  ///< of its standard error
};

[[nodiscard]] inline std::string failure_report(const job_failure& failure) {
  const std::string rule(78, '=');
  std::string text = fmt::format(
      "{}\nparxrun: rank {} of {} failed: {}, {:.1f} s after the start\n", rule, failure.first.rank,
      failure.ends.size(), to_string(failure.first.status), failure.first.seconds);
  const auto field = [&](std::string_view name, std::string_view value) {
    text += fmt::format("  {:<9} {}\n", name, value);
  };
  field("command", failure.command);
  field("pid", std::to_string(failure.first.pid));
  if (!failure.log_file.empty()) field("log", failure.log_file);
  if (!failure.last_lines.empty()) {
    text += "  its last lines on standard error:\n";
    for (const std::string& line : failure.last_lines) text += "    | " + line + "\n";
  }
  std::map<std::string, std::vector<int>> others;
  for (const rank_end& end : failure.ends) {
    if (end.rank == failure.first.rank) continue;
    others[to_string(end.status) + (end.was_told ? ", after parxrun ended the job" : "")].push_back(
        end.rank);
  }
  for (const auto& [how, ranks] : others) {
    text +=
        fmt::format("  {} {}: {}\n", ranks.size() == 1 ? "rank" : "ranks", rank_list(ranks), how);
  }
  return text +
         fmt::format("  parxrun exits with code {}\n{}\n", failure.first.status.shell_code(), rule);
}

}  // namespace parx::detail
