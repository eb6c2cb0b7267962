// run_book: what a run counts and writes down. The counts of all ranks since the last line, the
// lines, and the log that they go to.
//
// Ranks hear of each other in fold() alone, which all of them call at the same steps; what it says
// about stopping is equal on all. Rank 0 alone writes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/times.hpp>
#include <parx/nn/loss.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/detail/lines.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// What a rank, or any of them, wants besides training.
struct wishes {
  bool stop = false;  ///< request_stop()
  int signal = 0;     ///< that asked a process to end; of several the highest

  [[nodiscard]] bool any() const noexcept { return stop || signal != 0; }
};

class run_book {
 public:
  /// Borrowed, all four; `state` gets the sums of the losses and the history of the lines. `data`
  /// are the ranks with samples of their own, `job` all.
  run_book(const trainer_options& options, process_group& data, process_group& job,
           trainer_state& state, call_site site)
      : options_(options), data_(data), group_(job), state_(state), site_(site) {}

  /// Collective. A run begins that `start`ed then, from the state's step. A bar, if given, is
  /// borrowed until close().
  void open(std::chrono::steady_clock::time_point start, progress* bar);
  /// Local. Goes on counting from now on; `times` are the wrapper's.
  void begin_counting(const ddp_times& times) {
    const rank_counts so_far = watch.counts;
    watch = meter();
    watch.counts = so_far;
    times_before_ = times;
  }
  void close() noexcept { log = run_log(); }

  /// Collective. Brings all ranks' counts and wishes together. Where it fails, this rank's counts
  /// are as before.
  [[nodiscard]] wishes fold(const ddp_times& times, const wishes& of_this_rank);
  [[nodiscard]] std::uint64_t folds() const noexcept { return folds_; }
  /// Local. The number of another rank, whose state has replaced this one's; its folds had this
  /// rank's counts.
  void follow(std::uint64_t folds) {
    if (std::exchange(folds_, folds) != folds) watch.counts = {};
  }

  /// Local, after fold(). Writes and returns a line about the steps since the one before.
  record write_training(double norm, double lr, std::optional<double> loss_scale);
  /// Local. Whether there was a step since open().
  [[nodiscard]] bool has_trained() const noexcept { return state_.global_step > first_step_; }
  /// Local, after fold(). The last line.
  record write_closing();
  /// Local. A line in the log and in the state's history.
  void write(const record& line, run_log::kind kind);

  run_log log;
  meter watch;  ///< of this rank; the loop adds to its counts

 private:
  [[nodiscard]] std::size_t ranks() const noexcept {
    return static_cast<std::size_t>(group_.size());
  }
  /// Collective. Whether a lower rank of the job has the samples of this one.
  [[nodiscard]] bool another_has_its_samples();
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const trainer_options& options_;
  process_group& data_;
  process_group& group_;
  trainer_state& state_;
  const call_site site_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  ddp_times times_before_;
  std::vector<rank_counts> merged_;  // since the last line, by rank
  double samples_ = 0;               // of this process's run, over all ranks
  std::uint64_t first_step_ = 0;
  std::uint64_t folds_ = 0;
  bool repeats_ = false;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_book_impl.hpp>
#endif
