// log_lines: reads train.jsonl, ranks.jsonl and the tables, for a run that resumes and for the
// report.
//
// A last line without a newline, which a killed process may leave, is skipped. So are damaged
// lines: they neither end training nor prevent a report. One warning per file names the first one.
// Local.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
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
[[nodiscard]] inline std::uint64_t step_of_line(const std::string& line) {
  if (line.starts_with('{')) return json::parse(line).as<std::uint64_t>("step");
  std::uint64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, code] = std::from_chars(line.data(), end, step);
  if (code != std::errc{} || stop == end || *stop != ',')
    throw json::error("it does not begin with a number of steps");
  return step;
}

/// Drops the lines of steps after `step`: a run that resumes there writes them again. A table whose
/// header is damaged is emptied. Returns the last line that is kept, "" if there is none.
inline std::string drop_lines_after(const std::string& path, std::uint64_t step) {
  parx::detail::remove_abandoned(path);
  std::ifstream file(path);
  if (!file.is_open()) return {};
  const bool is_table = path.ends_with(".csv");
  bool has_header = false;
  std::string kept, last;
  for_each_log_line(file, path, [&](std::string& line, std::size_t number) {
    if (step == 0) return;
    const bool is_header = is_table && number == 1;
    if (is_header && !line.starts_with("step,"))
      throw json::error(
          "it does not name the table's columns. The table begins anew, and "
          "train.jsonl has what was in it");
    has_header |= is_header;
    if ((is_table && !has_header) || (!is_header && step_of_line(line) > step)) return;
    kept += line + "\n";
    last = std::move(line);
  });
  parx::detail::write_atomically(path, kept);
  return last;
}

/// The time of a line of train.jsonl; 0 if it has none.
[[nodiscard]] inline double seconds_in(const std::string& line) {
  if (line.empty()) return 0;
  try {
    return json::parse(line).as<double>("seconds");
  } catch (const json::error&) {
    return 0;  // not a line of a run_log
  }
}

}  // namespace parx::train::detail
