// Flags of a training program, named as Hugging Face's, read into parx::train::trainer_options.
//
//   cxxopts::Options options("train_x", "Trains x, data parallel");
//   options.add_options()("data", "...", ...);                     // the program's own flags first
//   examples::add_trainer_flags(options, {.trainer = {.learning_rate = 5e-4}, .batch_size = 16});
//   ...
//   const auto given = examples::parse(options, argc, argv);
//   const auto s = examples::trainer_flags(given, world);
//   examples::start_run(world, s);                                 // before data are read
//   ... trainer.train(); ...
//   examples::finish_run(world, s);
//
// --help shows the defaults that add_trainer_flags() is given. --batch_size and --batch-size are
// the same flag. A wrong value is a parx::usage_error that names the flag.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "banner.hpp"
#include "common/networks.hpp"
#include "common/options.hpp"
#include <fmt/ranges.h>

#include "common/report/report.hpp"
#include <parx/checkpoint.hpp>
#include <parx/comm.hpp>
#include <parx/ddp.hpp>
#include <parx/launch.hpp>
#include <parx/train.hpp>

namespace examples {

struct trainer_settings {
  parx::train::trainer_options trainer = {};
  std::size_t batch_size = 32;       ///< samples of one rank in one batch
  std::size_t eval_batch_size = 64;  ///< the same in evaluations
  double weight_decay = 0.01;
  std::size_t workers = 1;  ///< threads of a rank that fetch batches ahead
  std::string report = {};  ///< the HTML report to write, "" for none
};

namespace detail {

inline constexpr std::size_t any_count = 1'000'000'000'000;

inline std::string word(parx::train::strategy when) {
  using parx::train::strategy;
  return when == strategy::no ? "no" : when == strategy::steps ? "steps" : "epoch";
}
inline std::string word(parx::optim::decay form) {
  using parx::optim::decay;
  return form == decay::constant ? "constant" : form == decay::cosine ? "cosine" : "linear";
}
inline parx::train::strategy strategy_flag(const cxxopts::ParseResult& given,
                                           const std::string& flag) {
  using parx::train::strategy;
  const std::string value = choice(given, flag, {"no", "steps", "epoch"});
  return value == "no" ? strategy::no : value == "steps" ? strategy::steps : strategy::epoch;
}
inline parx::optim::decay decay_flag(const cxxopts::ParseResult& given, const std::string& flag) {
  using parx::optim::decay;
  const std::string value = choice(given, flag, {"linear", "cosine", "constant"});
  return value == "linear" ? decay::linear : value == "cosine" ? decay::cosine : decay::constant;
}

}  // namespace detail

/// Declares the flags, in groups of their own, with these defaults.
inline void add_trainer_flags(cxxopts::Options& options, const trainer_settings& defaults = {}) {
  const parx::train::trainer_options& d = defaults.trainer;
  const auto yes = cxxopts::value<bool>();
  options.add_options("Training")
      ("epochs", "passes over the training data, fractions allowed", text(d.num_train_epochs))
      ("max-steps", "optimizer steps; above 0 it replaces --epochs", text(d.max_steps))
      ("batch-size", "samples of one rank in one batch", text(defaults.batch_size))
      ("gradient-accumulation-steps", "batches that make one step",
       text(d.gradient_accumulation_steps))
      ("learning-rate", "highest learning rate", text(d.learning_rate.value_or(1e-3)))
      ("lr-scheduler-type", "after the warm-up: linear or cosine (both to 0), or constant",
       text(detail::word(d.lr_scheduler_type)))
      ("warmup-ratio", "fraction of the steps in which the rate rises", text(d.warmup_ratio))
      ("warmup-steps", "number of those steps; above 0 it replaces the ratio", text(d.warmup_steps))
      ("weight-decay", "of AdamW; biases and norms have none", text(defaults.weight_decay))
      ("max-grad-norm", "clip the gradient's norm to this; 0: never", text(d.max_grad_norm))
      ("seed", "of weights, order and dropout", text(d.seed))
      ("bf16", "matrix products in bfloat16", yes)
      ("fp16", "matrix products in float16, with a loss scale", yes)
      ("gradient-checkpointing", "recompute activations in backward: takes less memory", yes)
      ("workers", "threads of a rank that fetch batches ahead; 0: none", text(defaults.workers))
      ("on-loss", "if a rank is lost: end, or shrink and go on with the others", text("end"));
  options.add_options("Log and evaluation")
      ("logging-steps", "steps between two lines; 0: no lines", text(d.logging_steps))
      ("eval-strategy", "when to evaluate: no, steps or epoch", text(detail::word(d.eval_strategy)))
      ("eval-steps", "with --eval-strategy steps; 0: as --logging-steps", text(d.eval_steps))
      ("eval-batch-size", "samples of one rank in a batch of evaluation",
       text(defaults.eval_batch_size))
      ("metric-for-best-model", "figure that evaluations are compared by",
       text(d.metric_for_best_model))
      ("early-stopping-patience", "stop after this many evaluations without improvement; 0: never",
       text(d.early_stopping_patience))
      ("disable-progress", "no progress bar", yes)
      ("explain", "print what the run will do before it starts", yes)
      ("detect-anomaly", "name the module that produces the first NaN; slow", yes)
      ("report", "write a report of the run to this .html file; needs --output-dir",
       text(defaults.report));
  options.add_options("Checkpoints")
      ("output-dir", "folder for checkpoints, logs and the model; without it nothing is written",
       text(d.output_dir))
      ("save-strategy", "when to write a checkpoint: no, steps or epoch",
       text(detail::word(d.save_strategy)))
      ("save-steps", "with --save-strategy steps; auto: as often as pays", text(d.save_steps))
      ("mean-hours-between-failures", "of the job, for --save-steps auto",
       text(d.mean_hours_between_failures))
      ("save-total-limit", "checkpoints that are kept; 0: all", text(d.save_total_limit))
      ("load-best-model-at-end", "end with the best evaluated model, not the last", yes)
      ("resume", "continue from the newest checkpoint in --output-dir", yes)
      ("overwrite-output-dir", "start over and delete existing checkpoints", yes);
}

/// Reads the flags; touches no file. `measured` names the figures of the program's evaluations. The
/// world must outlive the settings.
[[nodiscard]] inline trainer_settings trainer_flags(
    const cxxopts::ParseResult& given, parx::world& world,
    const std::vector<std::string>& measured = {"loss"}) {
  const auto count = [&](const std::string& flag, std::size_t least = 0) {
    return number<std::size_t>(given, flag, least, detail::any_count);
  };
  const auto is_set = [&](const std::string& flag) { return given[flag].as<bool>(); };
  const auto text = [&](const std::string& flag) { return given[flag].as<std::string>(); };
  trainer_settings s;
  s.batch_size = count("batch-size", 1);
  s.eval_batch_size = count("eval-batch-size", 1);
  s.weight_decay = number(given, "weight-decay", 0.0, 1e6);
  s.workers = number<std::size_t>(given, "workers", 0, 1024);
  s.report = text("report");
  parx::train::trainer_options& o = s.trainer;
  o.output_dir = text("output-dir");
  o.num_train_epochs = number(given, "epochs", 0.0, 1e9);
  o.max_steps = count("max-steps");
  // --epochs on the command line takes precedence over a default of --max-steps.
  if (given.count("epochs") > 0 && given.count("max-steps") == 0) o.max_steps = 0;
  o.gradient_accumulation_steps = count("gradient-accumulation-steps", 1);
  o.learning_rate = number(given, "learning-rate", 0.0, 1e9);
  o.lr_scheduler_type = detail::decay_flag(given, "lr-scheduler-type");
  o.warmup_steps = count("warmup-steps");
  o.warmup_ratio = number(given, "warmup-ratio", 0.0, 1.0);
  o.bf16 = is_set("bf16");
  o.fp16 = is_set("fp16");
  o.gradient_checkpointing = is_set("gradient-checkpointing");
  o.max_grad_norm = number(given, "max-grad-norm", 0.0, 1e9);
  o.logging_steps = count("logging-steps");
  o.eval_strategy = detail::strategy_flag(given, "eval-strategy");
  o.eval_steps = count("eval-steps");
  o.save_strategy = detail::strategy_flag(given, "save-strategy");
  o.save_steps =
      text("save-steps") == "auto" ? parx::train::save_steps_auto : count("save-steps", 1);
  o.mean_hours_between_failures = number(given, "mean-hours-between-failures", 1e-6, 1e9);
  o.save_total_limit = count("save-total-limit");
  o.load_best_model_at_end = is_set("load-best-model-at-end");
  o.metric_for_best_model = text("metric-for-best-model");
  const std::string& metric = o.metric_for_best_model;
  const std::string bare = metric.starts_with("eval_") ? metric.substr(5) : metric;
  parx::require(std::find(measured.begin(), measured.end(), bare) != measured.end(),
                "--metric-for-best-model \"{}\": give {}", metric, fmt::join(measured, " or "));
  o.early_stopping_patience = count("early-stopping-patience");
  o.seed = number<std::uint64_t>(given, "seed", 0, UINT64_MAX);
  o.disable_progress = is_set("disable-progress");
  o.explain = is_set("explain");
  o.detect_anomaly = is_set("detect-anomaly");
  parx::require(!is_set("resume") || !is_set("overwrite-output-dir"),
                "--resume and --overwrite-output-dir exclude each other");
  parx::require(!is_set("resume") || !o.output_dir.empty(),
                "--resume looks for checkpoints in --output-dir, which is not given");
  parx::require(s.report.empty() || !o.output_dir.empty(),
                "--report is made from what a run writes to --output-dir, which is not given");
  if (choice(given, "on-loss", {"end", "shrink"}) == "shrink") {
    o.on_loss = [&world] { return world.shrink(); };
  }
  o.words = {.resume = "--resume",
             .overwrite = "--overwrite-output-dir",
             .length = "--max-steps or --epochs"};
  if (is_set("resume")) o.resume_from_checkpoint = parx::train::resume::latest;
  if (is_set("overwrite-output-dir")) o.resume_from_checkpoint = parx::train::resume::overwrite;
  parx::require(o.max_steps > 0 || o.num_train_epochs > 0,
                "--epochs 0: give more than 0, or --max-steps");
  parx::train::validate(o);
  return s;
}

/// Collective. Rank 0 prints how many ranks there are. Throws on every rank unless rank 0 can write
/// to the places that it will write to at the end of training.
inline void start_run(parx::world& world, const trainer_settings& s) {
  print_ranks(world);
  if (!s.trainer.output_dir.empty()) {
    parx::checkpoint_manager(world, s.trainer.output_dir).probe();
  }
  if (!s.report.empty()) parx::require_writable(world, s.report);
}

/// Local. Rank 0 writes the report of --report.
inline void finish_run(const parx::world& world, const trainer_settings& s) {
  if (s.report.empty() || world.rank() != 0) return;
  parx::train::write_report(s.report, {s.trainer.output_dir});
  fmt::print("report: {}\n", s.report);
}

}  // namespace examples
