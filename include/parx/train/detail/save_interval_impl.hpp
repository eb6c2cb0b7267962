// Definitions of save_interval.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include <parx/core/formatted.hpp>
#include <parx/train/save_interval.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE double save_interval(double save, double mean_time_between_failures) {
  if (save >= 2 * mean_time_between_failures) return mean_time_between_failures;
  const double ratio = save / (2 * mean_time_between_failures);
  return std::sqrt(2 * save * mean_time_between_failures) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         save;
}

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void save_schedule::end_step(std::uint64_t step, clock::time_point now) {
  if (step == first_ + 1) warm_ = now;
  if (step == first_ + first_save && warm_) {
    step_seconds_ = std::chrono::duration<double>(now - *warm_).count() / (first_save - 1);
  }
}

PARX_INLINE std::string save_schedule::decide(double step_seconds, double save_seconds,
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

}  // namespace parx::train::detail
