// run_plan: the arithmetic of a run, as pure functions: batches per step, steps per epoch, steps of
// the run, and the learning rate of each step.
//
// One optimizer step takes accumulation x world x batch_size samples; the last step of an epoch
// takes the remaining samples. Steps and epochs are counted as in Hugging Face's Trainer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <parx/core/check.hpp>
#include <parx/optim/lr_schedule.hpp>
#include <parx/train/options.hpp>

namespace parx::inline PARX_ABI::train {

struct run_plan {
  std::size_t samples = 0;     ///< of an epoch, over all ranks
  std::size_t batch_size = 0;  ///< samples of one rank, or virtual replica, in one batch
  std::size_t world = 1;
  std::size_t hosts = 1;  ///< of the job
  std::size_t ranks = 1;  ///< of the job: more than `world` where a model is cut over ranks
  /// Whether `world` are virtual replicas, dealt to the ranks.
  bool has_replicas = false;
  std::size_t accumulation = 1;
  std::uint64_t batches_per_epoch = 0;  ///< of one rank
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t steps = 0;  ///< of the whole run
  double epochs = 0;        ///< of the whole run, with the fraction of an incomplete one
  std::uint64_t warmup_steps = 0;

  /// Samples of one step, over all ranks and micro-batches.
  [[nodiscard]] std::size_t global_batch() const noexcept {
    return batch_size * world * accumulation;
  }
};

/// The warm-up steps of a run of `steps` steps.
[[nodiscard]] inline std::uint64_t warmup_of(const trainer_options& options, std::uint64_t steps) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(options.warmup_ratio * static_cast<double>(steps)));
}

/// Throws usage_error if an epoch has no batch.
[[nodiscard]] inline run_plan make_plan(const trainer_options& options, std::size_t samples,
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

/// The plan of a run that continues at `step` and `epoch` a run with another global batch: the rest
/// of num_train_epochs is divided into batches of its own. With max_steps the plan is unchanged.
[[nodiscard]] inline run_plan continued(run_plan plan, const trainer_options& options,
                                        std::uint64_t step, double epoch) {
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

/// The rate of step number `step`, counted from 0. `lr` is the highest rate.
[[nodiscard]] inline double learning_rate_at(const trainer_options& options, const run_plan& plan,
                                             double lr, std::uint64_t step) {
  if (options.lr_schedule) return options.lr_schedule(step);
  const optim::lr_schedule rates{.lr = lr,
                                 .warmup = plan.warmup_steps,
                                 .steps = std::max(plan.steps, plan.warmup_steps + 1),
                                 .decay = options.lr_scheduler_type};
  return rates.at(step);
}

/// The seed of dropout in one step of one rank: different for every (seed, step, rank).
[[nodiscard]] constexpr std::uint64_t step_seed(std::uint64_t seed, std::uint64_t step,
                                                int rank) noexcept {
  // The steps of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), which are bijections.
  const auto mix = [](std::uint64_t z) {
    z = (z ^ z >> 30U) * 0xBF58476D1CE4E5B9U;
    z = (z ^ z >> 27U) * 0x94D049BB133111EBU;
    return z ^ z >> 31U;
  };
  return mix(mix(mix(seed + 0x9E3779B97F4A7C15U) + step) + static_cast<std::uint64_t>(rank));
}

/// Whether something that happens every `interval` steps (0: never) or at the end of each epoch is
/// due after `step` steps.
[[nodiscard]] constexpr bool is_due(strategy when, std::uint64_t interval, std::uint64_t step,
                                    bool epoch_ends) noexcept {
  if (when == strategy::epoch) return epoch_ends;
  return when == strategy::steps && interval > 0 && step % interval == 0;
}

}  // namespace parx::train
