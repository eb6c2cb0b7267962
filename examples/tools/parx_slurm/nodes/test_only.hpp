// test_only: when a job would start, as `sbatch --test-only` says it. Pure.
#pragma once

#include <chrono>
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
[[nodiscard]] expected_start parse_test_only(std::string_view output);

}  // namespace parx::slurm
