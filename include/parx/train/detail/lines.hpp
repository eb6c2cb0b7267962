// The log lines of a training run, made from its state and the ranks' counts. Local, pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <parx/core/formatted.hpp>
#include <parx/core/signal_name.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train::detail {

/// A training line: the `loss` since the previous line, and `figures` of all ranks (summarise).
[[nodiscard]] inline record training_line(const trainer_state& state, double loss, double norm,
                                          double lr, const record& figures,
                                          std::optional<double> loss_scale) {
  record line{{"loss", loss}, {"grad_norm", norm}, {"learning_rate", lr}, {"epoch", state.epoch}};
  for (const auto& [name, value] : figures.entries()) {
    if (name != "loss") line.set(name, value);
  }
  if (loss_scale) line.set("loss_scale", *loss_scale);
  line.set("eta_seconds", figures.find("step_ms").value_or(0) * 1e-3 *
                              static_cast<double>(state.max_steps - state.global_step));
  return line;
}

/// The last line of a run that took `seconds` for `samples` samples and the steps after
/// `first_step`.
[[nodiscard]] inline record closing_line(const trainer_state& state, double seconds, double samples,
                                         std::uint64_t first_step) {
  return {{"train_runtime", seconds},
          {"train_samples_per_second", samples / seconds},
          {"train_steps_per_second", static_cast<double>(state.global_step - first_step) / seconds},
          {"train_loss", state.loss_of_run.mean()},
          {"epoch", state.epoch}};
}

[[nodiscard]] inline std::string stopping_text(const trainer_state& state,
                                               const trainer_options& options) {
  return formatted("  Stopping early: {} evaluations without a gain, best {} {:.6g} at step {}",
                   options.early_stopping_patience, options.metric_for_best_model,
                   state.best_metric.value_or(0), state.best_global_step);
}

/// The message when `signal` has ended training after `step`, with a checkpoint at `path`.
[[nodiscard]] inline std::string stopped_text(int signal, std::uint64_t step,
                                              const std::string& path, const option_words& words) {
  return formatted("stopped by {} at step {}; checkpoint in {}; resume with {}",
                   parx::detail::signal_name(signal), step, path, words.resume);
}

}  // namespace parx::train::detail
