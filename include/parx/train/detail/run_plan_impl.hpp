// Definitions of run_plan.hpp.
#pragma once

#include <algorithm>
#include <cmath>

#include <parx/core/check.hpp>
#include <parx/optim/lr_schedule.hpp>
#include <parx/train/run_plan.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE std::uint64_t warmup_of(const trainer_options& options, std::uint64_t steps) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(options.warmup_ratio * static_cast<double>(steps)));
}

PARX_INLINE run_plan make_plan(const trainer_options& options, std::size_t samples,
                               std::size_t batch_size, std::size_t world,
                               std::uint64_t batches_per_epoch) {
  require(batches_per_epoch > 0,
          "trainer: an epoch of {} samples has no batch of {} samples for each of {} ranks; take a "
          "smaller batch_size, fewer ranks or last_batch::keep",
          samples, batch_size, world);
  run_plan plan{.samples = samples,
                .batch_size = batch_size,
                .world = world,
                .accumulation = options.gradient_accumulation_steps,
                .batches_per_epoch = batches_per_epoch};
  plan.steps_per_epoch = (batches_per_epoch + plan.accumulation - 1) / plan.accumulation;
  const auto per_epoch = static_cast<double>(plan.steps_per_epoch);
  plan.steps =
      options.max_steps > 0
          ? options.max_steps
          : std::max<std::uint64_t>(
                1, static_cast<std::uint64_t>(std::ceil(options.num_train_epochs * per_epoch)));
  plan.epochs = static_cast<double>(plan.steps) / per_epoch;
  plan.warmup_steps = warmup_of(options, plan.steps);
  return plan;
}

PARX_INLINE run_plan continued(run_plan plan, const trainer_options& options, std::uint64_t step,
                               double epoch) {
  if (options.max_steps > 0) return plan;
  constexpr double rounding = 1e-9;  // the fraction of an epoch has the rounding of a division
  const auto steps_in = [&](double samples_left) {
    const double steps = samples_left / static_cast<double>(plan.global_batch());
    return std::clamp(std::ceil(steps - rounding), 0.0, static_cast<double>(plan.steps_per_epoch));
  };
  const double left = options.num_train_epochs - epoch;
  const double of_this_epoch = std::min(left, std::floor(epoch) + 1 - epoch);
  double steps = steps_in(of_this_epoch * static_cast<double>(plan.samples));
  steps += std::max(
      0.0,
      std::ceil((left - of_this_epoch) * static_cast<double>(plan.steps_per_epoch) - rounding));
  plan.steps = step + static_cast<std::uint64_t>(steps);
  plan.epochs = options.num_train_epochs;
  plan.warmup_steps = warmup_of(options, plan.steps);
  return plan;
}

PARX_INLINE double learning_rate_at(const trainer_options& options, const run_plan& plan, double lr,
                                    std::uint64_t step) {
  if (options.lr_schedule) return options.lr_schedule(step);
  const optim::lr_schedule rates{.lr = lr,
                                 .warmup = plan.warmup_steps,
                                 .steps = std::max(plan.steps, plan.warmup_steps + 1),
                                 .decay = options.lr_scheduler_type};
  return rates.at(step);
}

}  // namespace parx::train
