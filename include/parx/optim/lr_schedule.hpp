// lr_schedule: the learning rate as a pure function of the step: a linear warm-up, then one of the
// decays that Hugging Face's get_scheduler knows.
//
//   opt.set_lr(schedule.at(step));
//   const auto schedule = optim::cosine_with_warmup(3e-4, 100, 5000);
//
// Source: transformers/optimization.py. Cosine without warm-up is also PyTorch's
// CosineAnnealingLR(T_max = steps, eta_min = floor), decay::step its StepLR.
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::optim {

/// How the learning rate falls after its warm-up.
enum class decay {
  constant,
  linear,
  cosine,
  polynomial,  ///< (1 - progress)^power
  step,        ///< times gamma after every `every` steps
};

/// Where the warm-up ends.
enum class warmup_form {
  last_step_full,  ///< step number warmup - 1 has the full rate; the first one is not lost
  hugging_face,    ///< step number `warmup` has it, and step 0 a rate of 0
};

struct lr_schedule {
  double lr = 1e-3;          ///< the highest rate
  std::uint64_t warmup = 0;  ///< steps of a linear rise
  std::uint64_t steps = 0;   ///< all steps, warm-up included; not used by constant and step
  optim::decay decay = decay::constant;
  double floor = 0;             ///< the rate at `steps` and after
  double power = 1;             ///< of decay::polynomial
  std::uint64_t every = 1;      ///< of decay::step
  double gamma = 0.1;           ///< of decay::step
  warmup_form form = warmup_form::last_step_full;

  /// The rate of step number `step`, counted from 0. Throws usage_error when there are no steps
  /// left for the decay.
  [[nodiscard]] double at(std::uint64_t step) const;

 private:
  [[nodiscard]] double left_at(double progress) const;
};

/// Hugging Face's schedules by their names there; `steps` are all, warm-up included.
[[nodiscard]] inline lr_schedule constant_with_warmup(double lr, std::uint64_t warmup) {
  return {.lr = lr, .warmup = warmup, .form = warmup_form::hugging_face};
}
[[nodiscard]] lr_schedule linear_with_warmup(double lr, std::uint64_t warmup, std::uint64_t steps);
[[nodiscard]] lr_schedule cosine_with_warmup(double lr, std::uint64_t warmup, std::uint64_t steps);
/// Ends at `floor`; 1e-7 is Hugging Face's default.
[[nodiscard]] lr_schedule polynomial_with_warmup(double lr, std::uint64_t warmup,
                                                 std::uint64_t steps, double power = 1,
                                                 double floor = 1e-7);

}  // namespace parx::optim

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/optim/detail/lr_schedule_impl.hpp>
#endif
