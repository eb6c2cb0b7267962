// meter: what a rank counts between two log lines, and the line that all ranks' counts make.
//
// The counts of all ranks travel in one all_gather at each log line and are added up in rank order
// by everyone, so the figures are exact sums over ranks and steps, and equal bit by bit on all
// ranks. No step between two lines communicates for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/core/json.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/record.hpp>
#include <parx/train/usage.hpp>

namespace parx::inline PARX_ABI::train {

/// One rank's counts since the last line. Times are wall-clock seconds.
struct rank_counts {
  double loss_sum = 0;
  double loss_count = 0;
  double samples = 0;
  double tokens = 0;
  double steps = 0;
  double seconds = 0;        ///< since the last line, evaluations and saves left out
  double data = 0;           ///< of these, waiting for the loader's batches
  double wait = 0;           ///< of these, waiting for other ranks' gradients
  double communication = 0;  ///< for which gradients were on their way, hidden or not
  double cpu_seconds = 0;    ///< of the process's threads
  double resident_bytes = 0;
  double wants_stop = 0;  ///< 1 where this rank asked to end training
  double signal = 0;      ///< that asked this rank's process to end; 0: none
  double repeats = 0;     ///< 1 where a lower rank of the job works on the same samples

  [[nodiscard]] double compute() const noexcept { return std::max(0.0, seconds - data - wait); }
  /// Adds what was counted later.
  rank_counts& operator+=(const rank_counts& later) noexcept;
};
static_assert(std::is_trivially_copyable_v<rank_counts>);

/// What a loss function returned, a weighted_loss or an nn::tally, as numbers.
template <typename Loss>
[[nodiscard]] nn::tally figure_of(const Loss& loss) {
  if constexpr (requires { loss.sum.item(); }) {
    return {.sum = static_cast<double>(loss.sum.item()), .count = static_cast<double>(loss.count)};
  } else {
    return {.sum = static_cast<double>(loss.sum), .count = static_cast<double>(loss.count)};
  }
}

/// A rank's stopwatch: fills in the counts that come from clocks.
class meter {
  using clock = std::chrono::steady_clock;

 public:
  /// What the loop counts itself: loss, samples, tokens, steps, communication.
  rank_counts counts;

  meter() { go_on(); }

  /// What `wait` returns; its time is spent on the loader.
  template <typename Wait>
  decltype(auto) waiting_for_data(Wait&& wait) {
    const struct stopwatch {
      ~stopwatch() { total += std::chrono::duration<double>(clock::now() - from).count(); }
      double& total;
      clock::time_point from = clock::now();
    } running{counts.data};
    return std::forward<Wait>(wait)();
  }

  /// From here until go_on() nothing counts: evaluations and saves.
  void pause();
  void go_on();

  /// The counts so far, which start anew.
  [[nodiscard]] rank_counts take();

 private:
  bool running_ = false;
  clock::time_point since_{};
  double cpu_ = 0;
};

/// The figures of a log line that all ranks' counts give: loss, throughput, where the time went.
[[nodiscard]] record summarise(std::span<const rank_counts> ranks);

/// What each rank did, for ranks.jsonl and the report: one array a quantity, by rank.
[[nodiscard]] json::value rank_table(std::span<const rank_counts> ranks);

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/meter_impl.hpp>
#endif
