// run_plan: the arithmetic of a run, as a pure function: how many batches make a step, how many
// steps an epoch, how many steps the run, and what learning rate each has.
//
// One optimizer step takes accumulation x world x batch_size samples, the last step of an epoch
// what is left. Steps and epochs are counted as Hugging Face's Trainer counts them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include <parx/train/options.hpp>

namespace parx::inline PARX_ABI::train {

struct run_plan {
  std::size_t samples = 0;     ///< in an epoch, over all ranks
  std::size_t batch_size = 0;  ///< samples of one rank in one batch
  std::size_t world = 1;
  std::size_t accumulation = 1;
  std::uint64_t batches_per_epoch = 0;  ///< of one rank
  std::uint64_t steps_per_epoch = 0;
  std::uint64_t steps = 0;   ///< of the whole run
  std::uint64_t epochs = 0;  ///< of which the last may be cut short
  std::uint64_t warmup_steps = 0;

  /// Samples of one step, over all ranks and micro-batches.
  [[nodiscard]] std::size_t global_batch() const noexcept {
    return batch_size * world * accumulation;
  }
};

/// Steps of the warm-up of a run of so many.
[[nodiscard]] inline std::uint64_t warmup_of(const trainer_options& options, std::uint64_t steps) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return static_cast<std::uint64_t>(std::ceil(options.warmup_ratio * static_cast<double>(steps)));
}

/// Throws usage_error where an epoch has no batch.
[[nodiscard]] run_plan make_plan(const trainer_options& options, std::size_t samples,
                                 std::size_t batch_size, std::size_t world,
                                 std::uint64_t batches_per_epoch);

/// The plan of a run that goes on at `step`, where one with other global batches had come to
/// `epoch`: it fills up num_train_epochs in its own batches. A number of steps that was asked for
/// is kept.
[[nodiscard]] run_plan continued(run_plan plan, const trainer_options& options,
                                        std::uint64_t step, double epoch);

/// The rate of step number `step`, counted from 0. `lr` is the highest one.
[[nodiscard]] double learning_rate_at(const trainer_options& options, const run_plan& plan,
                                      double lr, std::uint64_t step);

/// The seed of dropout in one step of one rank: different for every triple.
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

/// Whether something with this rhythm happens after `step` steps, of which the last of an epoch is
/// marked. A rhythm of 0 steps never comes.
[[nodiscard]] constexpr bool is_due(strategy when, std::uint64_t rhythm, std::uint64_t step,
                                    bool epoch_ends) noexcept {
  if (when == strategy::epoch) return epoch_ends;
  return when == strategy::steps && rhythm > 0 && step % rhythm == 0;
}

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/run_plan_impl.hpp>
#endif
