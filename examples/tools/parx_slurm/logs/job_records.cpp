#include "tools/parx_slurm/logs/job_records.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>

#include "tools/parx_slurm/nodes/record.hpp"
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/split.hpp>

namespace parx::inline PARX_ABI::slurm {

std::vector<job_record> job_records(std::string_view shown, std::string_view accounts) {
  std::map<std::string, job_record> records;  // by task
  for (const std::string_view line : parx::detail::split_at(shown, '\n')) {
    auto fields = parse_record(line);
    if (fields["JobState"].empty()) continue;
    std::string task;
    if (!fields["ArrayTaskId"].empty()) {
      const std::string& id = fields["ArrayTaskId"];
      const bool is_one = id.find_first_not_of("0123456789") == id.npos;
      task = fields["ArrayJobId"] + "_" + (is_one ? id : "[" + id + "]");
    }
    records[task] = {.task = task,
                     .state = fields["JobState"],
                     .exit_code = fields["ExitCode"],
                     .nodes = fields["NodeList"],
                     .restarts = fields["Restarts"],
                     .log = fields["StdOut"],
                     .reason = fields["Reason"],
                     .job = fields["JobId"]};
  }
  for (const std::string_view line : parx::detail::split_at(accounts, '\n')) {
    const auto words = parx::detail::split_at(line, '|');
    if (words.size() != 4) continue;
    const std::string task(words[0].find('_') == words[0].npos ? std::string_view() : words[0]);
    job_record& record = records[task];
    record.task = task;
    record.state = words[1];
    record.exit_code = words[2];
    record.nodes = words[3];
  }
  std::vector<job_record> all;
  for (auto& [task, record] : records) all.push_back(std::move(record));
  std::stable_sort(all.begin(), all.end(), [](const job_record& a, const job_record& b) {
    const auto number = [](const std::string& task) {  // as text "7_10" would come before "7_2"
      const std::string digits = task.substr(task.find('_') + 1);
      return std::pair(digits.size(), digits);
    };
    return number(a.task) < number(b.task);
  });
  return all;
}

int severity(std::string_view state) {
  static constexpr std::array<std::string_view, 9> worse_ones{
      "PREEMPTED", "CANCELLED", "DEADLINE",      "BOOT_FAIL",    "TIMEOUT",
      "NODE_FAIL", "FAILED",    "OUT_OF_MEMORY", "LAUNCH_FAILED"};
  for (std::size_t i = worse_ones.size(); i-- > 0;) {
    if (state.starts_with(worse_ones[i])) return static_cast<int>(i) + 1;
  }
  return 0;
}

std::string states_text(const std::vector<std::string>& states) {
  std::map<std::string, std::size_t> counts;
  for (const std::string& each : states) ++counts[each];
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> parts;
  for (const auto& [state, count] : sorted) parts.push_back(formatted("{} {}", count, state));
  return joined_text(parts);
}

std::string job_of_log(std::string_view name, std::string_view first_lines) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t under = 1; under + 1 < name.size(); ++under) {
    if (name[under] != '_' || !is_digit(name[under - 1]) || !is_digit(name[under + 1])) continue;
    std::size_t begin = under, end = under + 1;
    while (begin > 0 && is_digit(name[begin - 1])) --begin;
    while (end < name.size() && is_digit(name[end])) ++end;
    const auto ends_word = [&](std::size_t at) {
      return at >= name.size() || name[at] == '.' || name[at] == '-';
    };
    const bool begins_word = begin == 0 || name[begin - 1] == '-' || name[begin - 1] == '.';
    if (begins_word && ends_word(end)) return std::string(name.substr(begin, end - begin));
  }
  for (const std::string_view line : parx::detail::split_at(first_lines, '\n')) {
    constexpr std::string_view mark = " of job ";
    const auto at = line.find(mark);
    if (!line.starts_with("turn ") || at == line.npos) continue;
    const std::string_view number = line.substr(at + mark.size());
    return std::string(number.substr(0, number.find_first_not_of("0123456789")));
  }
  return {};
}

}  // namespace parx::slurm
