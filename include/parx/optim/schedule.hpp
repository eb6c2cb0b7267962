// schedule: the learning rate as a pure function of the step: a linear warm-up, then constant,
// linear or cosine decay.
//
//   opt.options().lr = schedule.at(step);
//
// Cosine without warm-up is PyTorch's CosineAnnealingLR(T_max = steps, eta_min = floor).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include <parx/core/check.hpp>

namespace parx::optim {

enum class decay { constant, linear, cosine };

struct schedule {
  double lr = 1e-3;          ///< the highest rate
  std::uint64_t warmup = 0;  ///< steps of a linear rise; the last of them has the full rate
  std::uint64_t steps = 0;   ///< all steps, warm-up included; not used by decay::constant
  optim::decay decay = decay::constant;
  double floor = 0;  ///< the rate at `steps` and after

  /// The rate of step number `step`, counted from 0. Throws usage_error when a decay has no steps
  /// to happen in.
  [[nodiscard]] double at(std::uint64_t step) const {
    if (step < warmup) return lr * static_cast<double>(step + 1) / static_cast<double>(warmup);
    if (decay == optim::decay::constant) return lr;
    require(steps > warmup,
            "schedule: a decay over {} steps after a warm-up of {}: `steps` counts both", steps,
            warmup);
    const double progress =
        std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - warmup));
    const double left = decay == optim::decay::linear
                            ? 1 - progress
                            : (1 + std::cos(std::numbers::pi * progress)) / 2;
    return floor + (lr - floor) * left;
  }
};

}  // namespace parx::optim
