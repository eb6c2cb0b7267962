// Definitions of lr_schedule.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>

#include <parx/core/check.hpp>
#include <parx/optim/lr_schedule.hpp>

namespace parx::inline PARX_ABI::optim {

PARX_INLINE double lr_schedule::at(std::uint64_t step) const {
  if (step < warmup) {
    const std::uint64_t risen = form == warmup_form::hugging_face ? step : step + 1;
    return lr * static_cast<double>(risen) / static_cast<double>(warmup);
  }
  if (decay == optim::decay::constant) return lr;
  if (decay == optim::decay::step) {
    require(every > 0, "lr_schedule: decay::step needs `every`, a number of steps above 0");
    return std::max(floor, lr * std::pow(gamma, static_cast<double>((step - warmup) / every)));
  }
  require(steps > warmup,
          "lr_schedule: a decay over {} steps after a warm-up of {}: `steps` counts both", steps,
          warmup);
  const double progress =
      std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - warmup));
  return floor + (lr - floor) * left_at(progress);
}

PARX_INLINE double lr_schedule::left_at(double progress) const {
  switch (decay) {
    case optim::decay::linear:
      return 1 - progress;
    case optim::decay::cosine:
      return (1 + std::cos(std::numbers::pi * progress)) / 2;
    case optim::decay::polynomial:
      return std::pow(1 - progress, power);
    default:
      return 1;
  }
}

PARX_INLINE lr_schedule linear_with_warmup(double lr, std::uint64_t warmup, std::uint64_t steps) {
  return {.lr = lr,
          .warmup = warmup,
          .steps = steps,
          .decay = decay::linear,
          .form = warmup_form::hugging_face};
}

PARX_INLINE lr_schedule cosine_with_warmup(double lr, std::uint64_t warmup, std::uint64_t steps) {
  return {.lr = lr,
          .warmup = warmup,
          .steps = steps,
          .decay = decay::cosine,
          .form = warmup_form::hugging_face};
}

PARX_INLINE lr_schedule polynomial_with_warmup(double lr, std::uint64_t warmup, std::uint64_t steps,
                                               double power, double floor) {
  return {.lr = lr,
          .warmup = warmup,
          .steps = steps,
          .decay = decay::polynomial,
          .floor = floor,
          .power = power,
          .form = warmup_form::hugging_face};
}

}  // namespace parx::optim
