// save_interval: after how many steps a run saves a checkpoint, where it is to find out by itself
// (.save_steps = save_steps_auto).
//
// With a checkpoint every T seconds, each of which delays training by c, and a failure every M
// seconds on average, a run loses c / T of its time to saving and about T / 2M to the work that
// failures undo. The sum is least at T = sqrt(2 c M) (J. W. Young, CACM 17(9), 1974); Daly's
// formula adds the terms that matter where failures are nearly as frequent as checkpoints (J. T.
// Daly, FGCS 22(3), 2006, equation 37). The sum is flat around its minimum: an interval twice too
// long or too short costs a quarter more of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::train {

/// Seconds from the end of one checkpoint to the beginning of the next, if a checkpoint delays
/// training by `save` seconds and failures come every `mean_time_between_failures` seconds. Both
/// are above 0.
[[nodiscard]] inline double save_interval(double save, double mean_time_between_failures) {
  if (save >= 2 * mean_time_between_failures) return mean_time_between_failures;
  const double ratio = save / (2 * mean_time_between_failures);
  return std::sqrt(2 * save * mean_time_between_failures) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         save;
}

namespace detail {

/// When the checkpoints of save_steps_auto are due. The first one is early, and its cost decides
/// about the others. The same on all ranks, if decide() is given the same figures.
class save_schedule {
 public:
  using clock = std::chrono::steady_clock;

  /// Steps before the first checkpoint of a start. The time of a step is the mean of all but the
  /// first of them, which still makes buffers.
  static constexpr std::uint64_t first_save = 5;

  /// This start begins at `step`.
  void begin(std::uint64_t step) {
    *this = {};
    first_ = step;
    next_ = step + first_save;
  }
  void end_step(std::uint64_t step, clock::time_point now) {
    if (step == first_ + 1) warm_ = now;
    if (step == first_ + first_save && warm_) {
      step_seconds_ = std::chrono::duration<double>(now - *warm_).count() / (first_save - 1);
    }
  }
  [[nodiscard]] bool is_due(std::uint64_t step) const noexcept { return step >= next_; }
  [[nodiscard]] bool is_decided() const noexcept { return interval_ > 0; }
  /// 0 while it is not known.
  [[nodiscard]] double step_seconds() const noexcept { return step_seconds_; }

  /// Returns what to tell the user.
  [[nodiscard]] std::string decide(double step_seconds, double save_seconds,
                                   double mean_time_between_failures) {
    const double seconds = save_interval(std::max(save_seconds, 1e-6), mean_time_between_failures);
    interval_ = static_cast<std::uint64_t>(
        std::clamp(std::round(seconds / std::max(step_seconds, 1e-9)), 1.0, 1e15));
    return formatted(
        "  A checkpoint takes {:.3g} s and a step {:.3g} s; for a failure every {:.3g} h one is "
        "saved every {} steps ({:.3g} s)",
        save_seconds, step_seconds, mean_time_between_failures / 3600, interval_,
        static_cast<double>(interval_) * step_seconds);
  }
  void note_saved(std::uint64_t step) noexcept {
    next_ = step + (interval_ > 0 ? interval_ : first_save);
  }

 private:
  std::uint64_t first_ = 0;
  std::uint64_t next_ = 0;
  std::optional<clock::time_point> warm_;
  double step_seconds_ = 0;
  std::uint64_t interval_ = 0;  ///< in steps; 0: not decided
};

}  // namespace detail

}  // namespace parx::train
