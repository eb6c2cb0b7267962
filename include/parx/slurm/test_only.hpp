// test_only: when a job would start, as `sbatch --test-only` says it. Pure.
#pragma once

#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Either a start or a refusal.
struct expected_start {
  std::optional<std::chrono::system_clock::time_point> at;
  std::string refusal;  ///< Slurm's sentence, where it refuses such a job
};

/// What `sbatch --test-only` writes to its error output: "sbatch: Job 7 to start at
/// 2026-11-26T19:21:15 using 16 processors on nodes node[1-2] in partition long". The time is local
/// time, as Slurm's. Slurm says "now" also for partitions that are down or whose limit is shorter
/// than the job: look at those first.
[[nodiscard]] inline expected_start parse_test_only(std::string_view output) {
  constexpr std::string_view mark = " to start at ";
  const auto found = output.find(mark);
  if (found != output.npos) {
    const std::string time(output.substr(found + mark.size(), 19));
    std::tm parts{};
    parts.tm_isdst = -1;
    if (::strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr) {
      return {.at = std::chrono::system_clock::from_time_t(std::mktime(&parts)), .refusal = {}};
    }
  }
  std::string text(output.substr(0, output.find_last_not_of('\n') + 1));
  // The last line is the reason: "allocation failure: Requested node configuration is not ..."
  text.erase(0, text.rfind('\n') + 1);
  for (const std::string_view prefix : {"sbatch: ", "error: ", "allocation failure: "}) {
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
  }
  return {.at = std::nullopt, .refusal = text.empty() ? "Slurm gave no reason" : text};
}

}  // namespace parx::slurm
