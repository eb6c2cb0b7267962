// Definitions of options.hpp.
#pragma once

#include <cmath>

#include <parx/core/check.hpp>
#include <parx/train/options.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE metric_goal goal_of(const trainer_options& o) {
  const bool greater = o.greater_is_better.value_or(!o.metric_for_best_model.ends_with("loss"));
  return greater ? metric_goal::maximize : metric_goal::minimize;
}

PARX_INLINE void validate(const trainer_options& o) {
  // With more epochs the number of steps would overflow.
  require(o.max_steps > 0 || (o.num_train_epochs > 0 && o.num_train_epochs <= 1e9),
          "trainer: num_train_epochs is {}; give more than 0 and at most 1e9, or max_steps",
          o.num_train_epochs);
  require(o.gradient_accumulation_steps > 0,
          "trainer: gradient_accumulation_steps must be at least 1");
  require(!o.learning_rate || (*o.learning_rate >= 0 && std::isfinite(*o.learning_rate)),
          "trainer: learning_rate is {}; give a finite number that is not negative",
          o.learning_rate.value_or(0));
  require(o.warmup_ratio >= 0 && o.warmup_ratio <= 1, "trainer: warmup_ratio {} is not in [0, 1]",
          o.warmup_ratio);
  require(!o.bf16 || !o.fp16, "trainer: bf16 and fp16 exclude each other");
  require(o.max_grad_norm >= 0, "trainer: max_grad_norm {} is negative; 0 means no clipping",
          o.max_grad_norm);
  require(o.eval_strategy != strategy::steps || o.eval_steps > 0 || o.logging_steps > 0,
          "trainer: eval_strategy steps needs eval_steps or logging_steps above 0");
  require(o.mean_hours_between_failures > 0 && std::isfinite(o.mean_hours_between_failures),
          "trainer: mean_hours_between_failures is {}; give more than 0",
          o.mean_hours_between_failures);
  require(o.early_stopping_patience == 0 || o.eval_strategy != strategy::no,
          "trainer: early_stopping_patience counts evaluations; set eval_strategy");
  require(!o.load_best_model_at_end || (o.eval_strategy != strategy::no &&
                                        o.save_strategy != strategy::no && !o.output_dir.empty()),
          "trainer: load_best_model_at_end needs evaluations and checkpoints: set eval_strategy, "
          "save_strategy and output_dir");
  require(o.resume_from_checkpoint != resume::latest || !o.output_dir.empty(),
          "trainer: resume_from_checkpoint looks into output_dir, which is not set");
}

}  // namespace parx::train
