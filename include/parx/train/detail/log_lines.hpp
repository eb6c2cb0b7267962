// log_lines: reading what runs have written into train.jsonl, ranks.jsonl and the tables, for a run
// that resumes and for the report.
//
// A last line without an end, which a killed process leaves, is left out. So is a line that is
// damaged: a log is no reason to end a training, and the rest of it is worth a report. One warning
// a file names the first such line. Local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/formatted.hpp>
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
      damaged > 1 ? formatted(", like {} more", damaged - 1) : "", reason);
}

/// Drops the lines that belong to steps after `step`: a run which resumes there writes them again.
/// A table whose head is damaged begins anew. Returns the last line that is left, "" where there is
/// none.
std::string forget_after(const std::string& path, std::uint64_t step);

/// The time of a line of train.jsonl; 0 where it has none.
[[nodiscard]] double seconds_in(const std::string& line);

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/log_lines_impl.hpp>
#endif
