// log_lines: reads train.jsonl, ranks.jsonl and the tables, for a run that resumes and for the
// report.
//
// A last line without a newline, which a killed process may leave, is skipped. So are damaged
// lines: they neither end training nor prevent a report. One warning per file names the first one.
// Local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// Calls take(line, number) for every complete line of `file`, numbers counted from 1. A line for
/// which it throws json::error counts as damaged.
template <typename Take>
void for_each_log_line(std::ifstream& file, const std::string& path, Take&& take) {
  std::size_t damaged = 0, first = 0;
  std::string reason, line;
  for (std::size_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    try {
      take(line, number);
    } catch (const json::error& wrong) {
      if (damaged++ > 0) continue;
      first = number;
      reason = wrong.what();
    }
  }
  if (damaged == 0) return;
  log(log_level::warn, "\"{}\", line {} is damaged and left out{}: {}", path, first,
      damaged > 1 ? formatted(", like {} more", damaged - 1) : "", reason);
}

/// The step of a log line: {"step": 10, ... or, in a table, 10,... Throws json::error.
[[nodiscard]] std::uint64_t step_of_line(const std::string& line);

/// Drops the lines of steps after `step`: a run that resumes there writes them again. A table whose
/// header is damaged is emptied. Returns the last line that is kept, "" if there is none.
std::string drop_lines_after(const std::string& path, std::uint64_t step);

/// The time of a line of train.jsonl; 0 if it has none.
[[nodiscard]] double seconds_in(const std::string& line);

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/log_lines_impl.hpp>
#endif
