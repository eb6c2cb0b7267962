// same_settings: checks that all ranks train with the same options.
//
// If logging_steps or eval_steps differed, a collective would soon report the mismatch. But if the
// learning rate, loss scale or batch size differed, training would run and the replicas would
// silently diverge. Options that may differ (progress bar, console, detect_anomaly, the folder's
// path) are not compared. Collective.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/comm/process_group.hpp>
#include <parx/comm/rank_comparison.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/source.hpp>
#include <parx/train/options.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// Everything that must be equal on all ranks, one line each. `rate` is that of the first step,
/// `fresh` the state of a run that begins.
[[nodiscard]] inline std::string settings_text(const trainer_options& o, const trainer_state& fresh,
                                               double rate, std::size_t evaluations) {
  std::string text;
  const auto line = [&](std::string_view name, const auto& value) {
    text += formatted("{} = {}\n", name, value);
  };
  line("samples", fresh.num_samples);
  line("samples of a step on all ranks", fresh.global_batch);
  line("order of the samples", fresh.data_order);
  line("gradient_accumulation_steps", o.gradient_accumulation_steps);
  line("steps", fresh.max_steps);
  line("num_train_epochs", o.num_train_epochs);
  line("learning rate of the first step", rate);
  line("lr_scheduler_type", static_cast<int>(o.lr_scheduler_type));
  line("warmup_steps", o.warmup_steps);
  line("warmup_ratio", o.warmup_ratio);
  line("bf16", o.bf16);
  line("fp16", o.fp16);
  line("max_grad_norm", o.max_grad_norm);
  line("seed", o.seed);
  line("stop_at_nan", o.stop_at_nan);
  line("logging_steps", o.logging_steps);
  line("evaluations", evaluations);
  line("eval_strategy", static_cast<int>(o.eval_strategy));
  line("eval_steps", o.eval_steps);
  line("metric_for_best_model", o.metric_for_best_model);
  line("greater_is_better", goal_of(o) == metric_goal::maximize);
  line("early_stopping_patience", o.early_stopping_patience);
  line("early_stopping_threshold", o.early_stopping_threshold);
  line("output_dir given", !o.output_dir.empty());
  line("save_strategy", static_cast<int>(o.save_strategy));
  line("save_steps", o.save_steps);
  line("mean_hours_between_failures", o.mean_hours_between_failures);
  line("load_best_model_at_end", o.load_best_model_at_end);
  line("resume_from_checkpoint", static_cast<int>(o.resume_from_checkpoint));
  line("save_on_signal", o.save_on_signal);
  line("explain", o.explain);
  return text;
}

/// Throws errc::mismatch on every rank, with the first settings that differ.
inline void require_same_settings(process_group& group, const std::string& mine, call_site site) {
  if (group.size() == 1) return;
  const auto different = parx::detail::compare_over(group, mine, site);
  if (!different) return;
  throw_error(errc::mismatch,
              "trainer on group \"{}\": rank {} has other settings than rank 0. Give all ranks "
              "the same options and data:{}",
              group.name(), different->rank, different->text);
}

}  // namespace parx::train::detail
