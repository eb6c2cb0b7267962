// Definitions of log_lines.hpp.
#pragma once

#include <charconv>
#include <utility>

#include <parx/checkpoint/atomic_file.hpp>
#include <parx/core/json.hpp>
#include <parx/train/detail/log_lines.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE std::uint64_t step_of_line(const std::string& line) {
  if (line.starts_with('{')) return json::parse(line).as<std::uint64_t>("step");
  std::uint64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto [stop, code] = std::from_chars(line.data(), end, step);
  if (code != std::errc{} || stop == end || *stop != ',')
    throw json::error("it does not begin with a number of steps");
  return step;
}

PARX_INLINE std::string drop_lines_after(const std::string& path, std::uint64_t step) {
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

PARX_INLINE double seconds_in(const std::string& line) {
  if (line.empty()) return 0;
  try {
    return json::parse(line).as<double>("seconds");
  } catch (const json::error&) {
    return 0;  // not a line of a run_log
  }
}

}  // namespace parx::train::detail
