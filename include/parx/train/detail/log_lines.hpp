// log_lines: reading what runs have written into train.jsonl, ranks.jsonl and the tables, for a run
// that resumes and for the report.
//
// A last line without an end, which a killed process leaves, is left out. So is a line that is
// damaged: a log is no reason to end a training, and the rest of it is worth a report. One warning
// a file names the first such line. Local.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/json.hpp>
#include <parx/core/log.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// Calls take(line, number) for every whole line of `file`, numbers counted from 1. One for which
/// it throws json::error is damaged.
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
      damaged > 1 ? fmt::format(", like {} more", damaged - 1) : "", reason);
}

/// The steps after which a line of a log was written: {"step": 10, ... or, in a table, 10,...
/// Throws json::error.
[[nodiscard]] inline std::uint64_t step_of_line(const std::string& line) {
  if (line.starts_with('{')) return json::parse(line).as<std::uint64_t>("step");
  std::uint64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, code] = std::from_chars(line.data(), end, step);
  if (code != std::errc{} || stop == end || *stop != ',')
    throw json::error("it does not begin with a number of steps");
  return step;
}

/// Drops the lines that belong to steps after `step`: a run which resumes there writes them again.
/// A table whose head is damaged begins anew. Returns the last line that is left, "" where there is
/// none.
inline std::string forget_after(const std::string& path, std::uint64_t step) {
  parx::detail::remove_abandoned(path);
  std::ifstream file(path);
  if (!file.is_open()) return {};
  const bool is_table = path.ends_with(".csv");
  bool has_head = false;
  std::string kept, last;
  for_each_log_line(file, path, [&](std::string& line, std::size_t number) {
    if (step == 0) return;
    const bool is_head = is_table && number == 1;
    if (is_head && !line.starts_with("step,"))
      throw json::error("it does not name the table's columns. The table begins anew, and "
                        "train.jsonl has what was in it");
    has_head |= is_head;
    if ((is_table && !has_head) || (!is_head && step_of_line(line) > step)) return;
    kept += line + "\n";
    last = std::move(line);
  });
  parx::detail::write_atomically(path, kept);
  return last;
}

/// The time of a line of train.jsonl; 0 where it has none.
[[nodiscard]] inline double seconds_in(const std::string& line) {
  if (line.empty()) return 0;
  try {
    return json::parse(line).as<double>("seconds");
  } catch (const json::error&) {
    return 0;  // no line of a run_log
  }
}

}  // namespace parx::train::detail
