// Definitions of run_metrics.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/detail/lines.hpp>
#include <parx/train/detail/run_metrics.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void run_metrics::open(std::chrono::steady_clock::time_point start, progress* bar) {
  start_ = start;
  first_step_ = state_.global_step;
  samples_ = 0;
  merged_.assign(ranks(), {});
  repeats_ = repeats_samples();
  parx::detail::agree_on_rank0(&group_, site_,
                               [&] { log = run_log(options_, bar, state_.global_step); });
}

PARX_INLINE void run_metrics::begin_counting(const reduction_times& times) {
  const rank_counts so_far = watch.counts;
  watch = meter();
  watch.counts = so_far;
  times_before_ = times;
}

PARX_INLINE void run_metrics::close() noexcept { log = run_log(); }

PARX_INLINE record run_metrics::write_training(double norm, double lr,
                                               std::optional<double> loss_scale) {
  record line = training_line(state_, std::exchange(state_.loss_since_log, {}).mean(), norm, lr,
                              summarise(merged_), loss_scale);
  write(line, run_log::kind::train);
  log.write_ranks(rank_table(merged_), state_.global_step, seconds());
  merged_.assign(ranks(), {});
  return line;
}

PARX_INLINE record run_metrics::write_closing() {
  record line = closing_line(state_, seconds(), samples_, first_step_);
  write(line, run_log::kind::train);
  return line;
}

PARX_INLINE void run_metrics::write(const record& line, run_log::kind kind) {
  record kept = line;
  kept.set("step", static_cast<double>(state_.global_step));
  add_line(state_, std::move(kept));
  log.write(line, kind, state_.global_step, seconds());
}

PARX_INLINE bool run_metrics::repeats_samples() {
  if (&data_ == &group_) return false;
  std::vector<int> data_ranks(ranks());
  const std::array<int, 1> mine{data_.rank()};
  all_gather(group_, mine, data_ranks, {}, site_);
  const auto end = data_ranks.begin() + group_.rank();
  return std::find(data_ranks.begin(), end, mine[0]) != end;
}

PARX_INLINE double run_metrics::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

PARX_INLINE stop_request run_metrics::fold(const reduction_times& times,
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
  ++folds_;
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

}  // namespace parx::train::detail
