// trainer_options: the options of a training run, named as in Hugging Face's TrainingArguments.
//
// per_device_train_batch_size is the loader's batch_size and weight_decay the optimizer's; the
// options here have the names and meanings that they have there. Numbers of steps are optimizer
// steps. validate() checks all options before anything runs, so that a wrong combination fails at
// once.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/optim/lr_schedule.hpp>

namespace parx::inline PARX_ABI::train {

/// When something happens: never, every so many steps, or at the end of each epoch.
enum class strategy { no, steps, epoch };

/// Where a run starts, and what becomes of an earlier run in output_dir.
enum class resume {
  never,   ///< at step 0; an output_dir with the checkpoints or logs of a run is an error
  latest,  ///< at the newest complete checkpoint in output_dir, at step 0 if there is none
  overwrite,  ///< at step 0; checkpoints and logs in output_dir are deleted
};

/// For save_steps: as often as pays, by what a checkpoint of this run takes (save_interval.hpp).
inline constexpr std::uint64_t save_steps_auto = 0;

/// How messages write the options that they advise to set. A program whose user sets them by flags
/// gives the flags, "--resume latest".
struct option_words {
  std::string resume = ".resume_from_checkpoint = resume::latest";
  std::string overwrite = ".resume_from_checkpoint = resume::overwrite";
  std::string length = "max_steps or num_train_epochs";
};

struct trainer_options {
  /// Checkpoints, trainer_state.json, logs and metrics. Empty: nothing is written.
  std::string output_dir = {};
  double num_train_epochs = 3;
  std::uint64_t max_steps = 0;  ///< when above 0, ends training instead of num_train_epochs
  std::size_t gradient_accumulation_steps = 1;

  /// The highest rate; by default that of the optimizer's options. It rises linearly over the
  /// warm-up, then follows lr_scheduler_type to 0 at the end. If parameter groups have different
  /// rates, leave it out: the schedule then scales all of them in proportion.
  std::optional<double> learning_rate = std::nullopt;
  optim::decay lr_scheduler_type = optim::decay::linear;
  std::uint64_t warmup_steps = 0;
  double warmup_ratio = 0;  ///< of all steps; used if warmup_steps is 0
  /// Replaces the above: the rate of each step, counted from 0, of the group with the highest rate.
  std::function<double(std::uint64_t)> lr_schedule = {};
  /// Matrix products in bfloat16 or float16 (parx::autocast); float16 with a loss scale.
  bool bf16 = false;
  bool fp16 = false;
  /// Recomputes activations in backward instead of storing them. For models::bert_classifier, gpt,
  /// llama, encoder_decoder, and any model that has gradient_checkpointing_enable().
  bool gradient_checkpointing = false;
  double max_grad_norm = 1;  ///< gradients are scaled down to this norm; 0: no clipping

  std::uint64_t logging_steps = 500;  ///< steps between two log lines; 0: none
  strategy eval_strategy = strategy::no;
  std::uint64_t eval_steps = 0;  ///< 0: as logging_steps
  strategy save_strategy = strategy::steps;
  std::uint64_t save_steps = 500;  ///< or save_steps_auto
  /// For save_steps_auto: hours from one failure of the whole job to the next, on average. A node
  /// fails once in some years: 6 h are those of a job on thousands of nodes, or on preemptible
  /// ones.
  double mean_hours_between_failures = 6;
  std::size_t save_total_limit = 0;  ///< checkpoints to keep, including the best one; 0: all
  bool load_best_model_at_end = false;
  /// The metric by which evaluations are compared: "loss", "accuracy", ..., with or without "eval_"
  /// in front.
  std::string metric_for_best_model = "loss";
  /// Default: true for every metric whose name does not end in "loss".
  std::optional<bool> greater_is_better = std::nullopt;
  /// Training ends after this many evaluations in a row that improve by no more than
  /// early_stopping_threshold; 0: never.
  std::size_t early_stopping_patience = 0;
  double early_stopping_threshold = 0;

  std::uint64_t seed = 42;  ///< of dropout, which every step seeds again; not of sampler and model
  train::resume resume_from_checkpoint = train::resume::never;
  /// If checkpoints are written: SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 to any rank ends
  /// training on all ranks after the current step. A checkpoint is saved, and train() throws
  /// stopped_by_signal, for which parx::run() returns 75. A second signal ends the process at once.
  /// Signals that the program handles itself are not touched.
  bool save_on_signal = true;

  /// Called when a rank is lost in training. Unset: train() throws on all ranks. Otherwise it
  /// returns the group of the surviving ranks, `[&] { return world.shrink(); }`. That is
  /// move-assigned to the group that the ddp borrows, which must be `world`: it has the new ranks
  /// from then on. They agree on the last step that any of them has finished and continue after it,
  /// as a run would that resumes there with fewer ranks: the samples of the interrupted step, and
  /// of the rest of the epoch, are divided among the survivors. The log line of the last finished
  /// step has only their figures. A rank that fails by itself counts as lost. For a ddp and
  /// data::loaders, under parxrun --on-loss continue or torchrun.
  std::function<process_group()> on_loss = {};

  bool disable_progress = false;  ///< no progress bar
  bool explain = false;           ///< print explain() before training
  bool stop_at_nan = true;        ///< an Inf or NaN loss or gradient ends training on all ranks
  /// Check every value and name the module of the first Inf or NaN; slow. Under fp16 the loss scale
  /// handles gradients that overflow: backward is checked only once the scale has fallen to 1.
  bool detect_anomaly = false;
  bool tensorboard = true;      ///< event files in output_dir/runs
  bool log_to_console = true;   ///< the lines that Hugging Face's Trainer prints
  option_words words = {};
};

/// Whether evaluations are compared with each other.
[[nodiscard]] inline bool compares_evaluations(const trainer_options& o) {
  return o.load_best_model_at_end || o.early_stopping_patience > 0;
}
/// greater_is_better or its default: a loss is minimised, anything else maximised.
[[nodiscard]] inline metric_goal goal_of(const trainer_options& o) {
  const bool greater = o.greater_is_better.value_or(!o.metric_for_best_model.ends_with("loss"));
  return greater ? metric_goal::maximize : metric_goal::minimize;
}

/// Throws usage_error for invalid values and combinations.
inline void validate(const trainer_options& o) {
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
