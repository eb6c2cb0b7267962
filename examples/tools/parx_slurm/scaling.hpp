// scaling: how a training's speed grows with nodes, ranks and threads, and which is worth it. Pure:
// from the trainer's log lines to a table and a sentence.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::slurm {

/// Nodes x ranks of a node x threads of a rank.
struct scale_point {
  int nodes = 1;
  int ranks = 1;
  int threads = 1;

  [[nodiscard]] int cores() const noexcept { return nodes * ranks * threads; }
  auto operator<=>(const scale_point&) const = default;
};

[[nodiscard]] std::string to_string(const scale_point& point);

/// What has been measured of one point, in all its runs.
struct scale_runs {
  scale_point point;
  std::vector<double> step_ms;
  std::vector<double> samples_per_second;
  std::vector<double> communication_percent;  ///< of the time, waited for
  double samples_of_epoch = 0;                ///< 0: not known
  std::string failure;                        ///< why a run gave no figures; empty: all did
};

namespace detail {

[[nodiscard]] double quantile(std::vector<double> values, double share);

}  // namespace detail

[[nodiscard]] inline double median_of(const std::vector<double>& values) {
  return detail::quantile(values, 0.5);
}

/// The distance of the quartiles, as a share of the median; 0 for fewer than two values.
[[nodiscard]] double spread_of(const std::vector<double>& values);

/// Adds the figures of a run: its train.jsonl, a line for each `logging_steps` steps. The first
/// line with figures, which includes the warm-up of caches and memory, does not count where there
/// are more. Returns how many lines counted. Lines that are no JSON are skipped.
std::size_t add_run(std::string_view train_jsonl, scale_runs& runs);

/// The rule of the verdict: more cores are worth it as long as they give at least this share of
/// what they would give if the speed grew as they do.
inline constexpr double worthwhile_share = 0.7;

/// The point to take, and why.
struct scale_verdict {
  std::optional<scale_point> take;  ///< nullopt: no run gave figures
  std::string text;
};

/// Of the points with as many cores, only the fastest counts. From the fewest cores on, the next
/// larger point is taken while its marginal efficiency, (speed-up - 1) / (growth of cores - 1), is
/// at least worthwhile_share.
[[nodiscard]] scale_verdict recommend(const std::vector<scale_runs>& all);

/// A line for each point, in order. Speed-up and efficiency are those against the point with the
/// fewest cores, the fastest of several. `price`: of a core for an hour; 0: no column.
[[nodiscard]] std::string scale_table(std::vector<scale_runs> all, double price = 0);

/// "4x2,8x1": ranks of a node x threads of a rank; "auto": all that fill `cores`, as 1x8, 2x4, 4x2,
/// 8x1. Throws usage_error for anything else.
[[nodiscard]] std::vector<scale_point> parse_ranks_threads(std::string_view text, int cores);

}  // namespace parx::slurm
