// meter: the counts of a rank between two log lines, and the figures computed from all ranks'
// counts.
//
// At each log line one all_gather exchanges the counts, and every rank adds them in rank order, so
// the figures are exact sums over ranks and steps and have the same bits on all ranks. Steps
// between two lines do not communicate for them.
#pragma once

#include <algorithm>
#include <chrono>
#include <span>
#include <type_traits>
#include <utility>

#include <parx/core/json.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

/// One rank's counts since the last line. Times are wall-clock seconds.
struct rank_counts {
  double loss_sum = 0;
  double loss_count = 0;
  double samples = 0;
  double tokens = 0;
  double steps = 0;
  double seconds = 0;        ///< since the last line, without evaluations and saves
  double data = 0;           ///< of these, waiting for the loader's batches
  double wait = 0;           ///< of these, waiting for other ranks' gradients
  double communication = 0;  ///< in which gradients were in flight, hidden or not
  double cpu_seconds = 0;    ///< of all threads of the process
  double resident_bytes = 0;
  double wants_stop = 0;  ///< 1 if this rank asked to end training
  double signal = 0;      ///< the signal that asked this rank's process to end; 0: none
  double repeats = 0;     ///< 1 if a lower rank of the job works on the same samples

  [[nodiscard]] double compute() const noexcept { return std::max(0.0, seconds - data - wait); }
  /// Adds the counts of a later interval.
  rank_counts& operator+=(const rank_counts& later) noexcept;
};
static_assert(std::is_trivially_copyable_v<rank_counts>);

/// The result of a loss function, a weighted_loss or an nn::tally, as numbers.
template <typename Loss>
[[nodiscard]] nn::tally figure_of(const Loss& loss) {
  if constexpr (requires { loss.sum.item(); }) {
    return {.sum = static_cast<double>(loss.sum.item()), .count = static_cast<double>(loss.count)};
  } else {
    return {.sum = static_cast<double>(loss.sum), .count = static_cast<double>(loss.count)};
  }
}

/// A rank's stopwatch: measures the counts that come from clocks.
class meter {
  using clock = std::chrono::steady_clock;

 public:
  /// The training loop adds loss, samples, tokens, steps and communication.
  rank_counts counts;

  meter() { resume(); }

  /// Calls `wait`, counts its time as waiting for data, and returns its result.
  template <typename Wait>
  decltype(auto) waiting_for_data(Wait&& wait) {
    const struct stopwatch {
      ~stopwatch() { total += std::chrono::duration<double>(clock::now() - from).count(); }
      double& total;
      clock::time_point from = clock::now();
    } running{counts.data};
    return std::forward<Wait>(wait)();
  }

  /// Time from here until resume() does not count: evaluations and saves.
  void pause();
  void resume();

  /// Returns the counts so far and resets them.
  [[nodiscard]] rank_counts take();

 private:
  bool running_ = false;
  clock::time_point since_{};
  double cpu_ = 0;
};

/// The figures of a log line, from all ranks' counts: loss, throughput, and how time was spent.
[[nodiscard]] record summarise(std::span<const rank_counts> ranks);

/// The figures of each rank, for ranks.jsonl and the report: one array per quantity, by rank.
[[nodiscard]] json::value rank_table(std::span<const rank_counts> ranks);

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/meter_impl.hpp>
#endif
