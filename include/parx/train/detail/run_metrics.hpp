// run_metrics: the counts and log lines of a run: the counts of all ranks since the last line, the
// lines made from them, and the log.
//
// Ranks exchange counts only in exchange(), which all of them call at the same steps; its result is
// the same on all ranks. Only rank 0 writes.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/nn/loss.hpp>
#include <parx/reduction/times.hpp>
#include <parx/trace/progress.hpp>
#include <parx/train/detail/lines.hpp>
#include <parx/train/meter.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// The requests of one rank, or of any rank, to end training.
struct stop_request {
  bool stop = false;  ///< request_stop() was called
  int signal = 0;     ///< asked a process to end; the highest of several

  [[nodiscard]] bool any() const noexcept { return stop || signal != 0; }
};

class run_metrics {
 public:
  /// Borrows all of these. `state` gets the sums of the losses and the history of the lines. `data`
  /// are the ranks with different samples, `job` all ranks.
  run_metrics(const trainer_options& options, process_group& data, process_group& job,
              trainer_state& state, call_site site)
      : options_(options), data_(data), group_(job), state_(state), site_(site) {}

  /// Collective. Opens the log of a run that started at time `start` and begins at the state's
  /// step. The bar, which may be null, is borrowed until close().
  void open(std::chrono::steady_clock::time_point start, progress* bar) {
    start_ = start;
    first_step_ = state_.global_step;
    samples_ = 0;
    merged_.assign(ranks(), {});
    repeats_ = repeats_samples();
    parx::detail::agree_on_rank0(&group_, site_,
                                 [&] { log = run_log(options_, bar, state_.global_step); });
  }
  /// Local. Restarts the clocks, keeping the counts; `times` are the wrapper's.
  void begin_counting(const reduction_times& times) {
    const rank_counts so_far = watch.counts;
    watch = meter();
    watch.counts = so_far;
    times_before_ = times;
  }
  void close() noexcept { log = run_log(); }

  /// Collective. Adds up all ranks' counts and combines their requests. If it throws, this rank's
  /// counts are unchanged.
  [[nodiscard]] stop_request exchange(const reduction_times& times,
                                      const stop_request& of_this_rank) {
    watch.pause();
    rank_counts mine = watch.take();
    mine.wait = (times - times_before_).waited;
    mine.communication = (times - times_before_).communication;
    times_before_ = times;
    mine.wants_stop = of_this_rank.stop ? 1 : 0;
    mine.signal = of_this_rank.signal;
    mine.repeats = repeats_ ? 1 : 0;
    std::vector<rank_counts> all(ranks());
    try {
      all_gather(group_, std::span<const rank_counts>(&mine, 1), all, {}, site_);
    } catch (...) {
      watch.counts = mine;
      throw;
    }
    ++exchanges_;
    stop_request of_all;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      merged_[rank] += all[rank];
      if (all[rank].repeats == 0) {
        const nn::tally loss{.sum = all[rank].loss_sum, .count = all[rank].loss_count};
        state_.loss_since_log += loss;
        state_.loss_of_run += loss;
        samples_ += all[rank].samples;
      }
      of_all.stop |= all[rank].wants_stop > 0;
      of_all.signal = std::max(of_all.signal, static_cast<int>(all[rank].signal));
    }
    watch.resume();
    return of_all;
  }
  [[nodiscard]] std::uint64_t exchanges() const noexcept { return exchanges_; }
  /// Local. After another rank's state has replaced this one's: takes over its number of exchanges.
  /// If that differs, its last exchange included this rank's counts, which are dropped.
  void follow(std::uint64_t exchanges) {
    if (std::exchange(exchanges_, exchanges) != exchanges) watch.counts = {};
  }

  /// Local, after exchange(). Writes and returns a line about the steps since the previous line.
  record write_training(double norm, double lr, std::optional<double> loss_scale) {
    record line = training_line(state_, std::exchange(state_.loss_since_log, {}).mean(), norm, lr,
                                summarise(merged_), loss_scale);
    write(line, run_log::kind::train);
    log.write_ranks(rank_table(merged_), state_.global_step, seconds());
    merged_.assign(ranks(), {});
    return line;
  }
  /// Local. Whether there has been a step since open().
  [[nodiscard]] bool has_trained() const noexcept { return state_.global_step > first_step_; }
  /// Local, after exchange(). Writes and returns the last line.
  record write_closing() {
    record line = closing_line(state_, seconds(), samples_, first_step_);
    write(line, run_log::kind::train);
    return line;
  }
  /// Local. Writes a line to the log and to the state's history.
  void write(const record& line, run_log::kind kind) {
    record kept = line;
    kept.set("step", static_cast<double>(state_.global_step));
    add_line(state_, std::move(kept));
    log.write(line, kind, state_.global_step, seconds());
  }

  run_log log;
  meter watch;  ///< of this rank; the loop adds to its counts

 private:
  [[nodiscard]] std::size_t ranks() const noexcept {
    return static_cast<std::size_t>(group_.size());
  }
  /// Collective. Whether a lower rank of the job works on the same samples.
  [[nodiscard]] bool repeats_samples() {
    if (&data_ == &group_) return false;
    std::vector<int> data_ranks(ranks());
    const std::array<int, 1> mine{data_.rank()};
    all_gather(group_, mine, data_ranks, {}, site_);
    const auto end = data_ranks.begin() + group_.rank();
    return std::find(data_ranks.begin(), end, mine[0]) != end;
  }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  const trainer_options& options_;
  process_group& data_;
  process_group& group_;
  trainer_state& state_;
  const call_site site_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  reduction_times times_before_;
  std::vector<rank_counts> merged_;  // since the last line, by rank
  double samples_ = 0;               // since open(), over all ranks
  std::uint64_t first_step_ = 0;
  std::uint64_t exchanges_ = 0;
  bool repeats_ = false;
};

}  // namespace parx::train::detail
