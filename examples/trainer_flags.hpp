// The flags of the programs that train, in Hugging Face's words, and the trainer_options they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "options.hpp"
#include <parx/train/options.hpp>

namespace examples {

/// Adds --epochs, --lr, --output-dir and so on; what is not given has the value in `defaults`.
inline void add_trainer_flags(cxxopts::Options& flags, const parx::train::trainer_options& defaults = {}) {
  const auto text = [](const auto& value) {
    return cxxopts::value<std::string>()->default_value(fmt::format("{}", value));
  };
  flags.add_options("training")
      ("epochs", "passes over the data", text(defaults.num_train_epochs))
      ("max-steps", "end after so many steps; 0: by --epochs", text(defaults.max_steps))
      ("gradient-accumulation-steps", "batches in one step", text(defaults.gradient_accumulation_steps))
      ("lr", "highest learning rate", text(defaults.learning_rate.value_or(5e-5)))
      ("lr-scheduler", "constant, linear or cosine", text("linear"))
      ("warmup-ratio", "part of all steps in which the rate rises", text(defaults.warmup_ratio))
      ("max-grad-norm", "clip gradients to this norm; 0: do not", text(defaults.max_grad_norm))
      ("logging-steps", "steps between two lines; 0: none", text(defaults.logging_steps))
      ("eval-steps", "steps between two evaluations; 0: one an epoch", text(defaults.eval_steps))
      ("save-steps", "steps between two checkpoints; 0: one an epoch", text(defaults.save_steps))
      ("save-total-limit", "checkpoints to keep; 0: all", text(defaults.save_total_limit))
      ("early-stopping-patience", "evaluations without a gain that end training; 0: never",
       text(defaults.early_stopping_patience))
      ("metric", "what evaluations are compared by", text(defaults.metric_for_best_model))
      ("load-best-model-at-end", "end with the best checkpoint's model")
      ("seed", "of weights, order and dropout", text(defaults.seed))
      ("output-dir", "checkpoints, metrics and logs; nothing is written without it", text(defaults.output_dir))
      ("resume", "go on from the newest checkpoint in --output-dir")
      ("overwrite", "delete the checkpoints in --output-dir")
      ("bf16", "matrix products in bfloat16")
      ("fp16", "matrix products in float16, with a loss scale")
      ("detect-anomaly", "name the module that makes the first NaN (slow)")
      ("explain", "print what will be done first")
      ("no-progress", "no progress bar");
}

/// Throws parx::usage_error for what is out of range or excludes each other.
inline parx::train::trainer_options trainer_options_from(const cxxopts::ParseResult& given) {
  using parx::train::resume;
  using parx::train::strategy;
  constexpr std::uint64_t most = UINT64_MAX;
  const auto whole = [&](const char* flag) { return number<std::uint64_t>(given, flag, 0, most); };
  const auto is_set = [&](const char* flag) { return given.count(flag) != 0; };
  const auto rhythm = [](std::uint64_t steps) { return steps > 0 ? strategy::steps : strategy::epoch; };
  parx::require(!is_set("resume") || !is_set("overwrite"), "--resume and --overwrite exclude each other");

  const std::string decay = choice(given, "lr-scheduler", {"constant", "linear", "cosine"});
  parx::train::trainer_options o;
  o.output_dir = given["output-dir"].as<std::string>();
  o.num_train_epochs = number(given, "epochs", 1e-6, 1e6);
  o.max_steps = whole("max-steps");
  o.gradient_accumulation_steps = number<std::size_t>(given, "gradient-accumulation-steps", 1, 1'000'000);
  o.learning_rate = number(given, "lr", 0.0, 100.0);
  o.lr_scheduler_type = decay == "constant" ? parx::optim::decay::constant
                        : decay == "linear" ? parx::optim::decay::linear
                                            : parx::optim::decay::cosine;
  o.warmup_ratio = number(given, "warmup-ratio", 0.0, 1.0);
  o.max_grad_norm = number(given, "max-grad-norm", 0.0, 1e9);
  o.logging_steps = whole("logging-steps");
  o.eval_steps = whole("eval-steps");
  o.eval_strategy = rhythm(o.eval_steps);
  o.save_steps = whole("save-steps");
  o.save_strategy = rhythm(o.save_steps);
  o.save_total_limit = number<std::size_t>(given, "save-total-limit", 0, 1'000'000);
  o.early_stopping_patience = number<std::size_t>(given, "early-stopping-patience", 0, 1'000'000);
  o.metric_for_best_model = given["metric"].as<std::string>();
  o.load_best_model_at_end = is_set("load-best-model-at-end");
  o.seed = whole("seed");
  o.resume_from_checkpoint = is_set("resume")      ? resume::latest
                             : is_set("overwrite") ? resume::overwrite
                                                   : resume::no;
  o.bf16 = is_set("bf16");
  o.fp16 = is_set("fp16");
  o.detect_anomaly = is_set("detect-anomaly");
  o.explain = is_set("explain");
  o.disable_progress = is_set("no-progress");
  parx::train::validate(o);
  return o;
}

}  // namespace examples
