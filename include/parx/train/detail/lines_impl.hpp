// Definitions of lines.hpp.
#pragma once

#include <parx/core/formatted.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/train/detail/lines.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE record training_line(const trainer_state& state, double loss, double norm, double lr,
                                 const record& figures, std::optional<double> loss_scale) {
  record line{{"loss", loss}, {"grad_norm", norm}, {"learning_rate", lr}, {"epoch", state.epoch}};
  for (const auto& [name, value] : figures.entries()) {
    if (name != "loss") line.set(name, value);
  }
  if (loss_scale) line.set("loss_scale", *loss_scale);
  line.set("eta_seconds", figures.find("step_ms").value_or(0) * 1e-3 *
                              static_cast<double>(state.max_steps - state.global_step));
  return line;
}

PARX_INLINE record closing_line(const trainer_state& state, double seconds, double samples,
                                std::uint64_t first_step) {
  return {{"train_runtime", seconds},
          {"train_samples_per_second", samples / seconds},
          {"train_steps_per_second", static_cast<double>(state.global_step - first_step) / seconds},
          {"train_loss", state.loss_of_run.mean()},
          {"epoch", state.epoch}};
}

PARX_INLINE std::string stopping_text(const trainer_state& state, const trainer_options& options) {
  return formatted("  Stopping early: {} evaluations without a gain, best {} {:.6g} at step {}",
                   options.early_stopping_patience, options.metric_for_best_model,
                   state.best_metric.value_or(0), state.best_global_step);
}

PARX_INLINE std::string stopped_text(int signal, std::uint64_t step, const std::string& path,
                                     const option_words& words) {
  return formatted("stopped by {} at step {}; checkpoint in {}; resume with {}",
                   parx::detail::signal_name(signal), step, path, words.resume);
}

}  // namespace parx::train::detail
