// trainer_state: the progress of a run, which trainer_state.json keeps beside a checkpoint's
// tensors.
//
// In the file, members that Hugging Face's trainer_state.json also has are named as there.
// `samples_seen` alone determines a run's position in its data, at any world size
// (data::distributed_sampler::state). A value type, equal on all ranks at all times, because
// everything in it comes from sums over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/json.hpp>
#include <parx/data/sampler.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

struct trainer_state {
  std::uint64_t global_step = 0;   ///< optimizer steps done
  std::uint64_t samples_seen = 0;  ///< of all ranks and epochs
  double epoch = 0;                ///< passes over the data, including the fraction of this one
  std::uint64_t max_steps = 0;     ///< of the whole run
  std::size_t num_samples = 0;     ///< of an epoch
  std::size_t global_batch = 0;    ///< samples of one step, over all ranks
  std::size_t world_size = 1;      ///< of the run that wrote this
  std::uint64_t seed = 0;
  std::string data_order = {};  ///< of an epoch: see data_order_of

  std::optional<double> best_metric = std::nullopt;
  std::uint64_t best_global_step = 0;
  std::string best_model_checkpoint = {};
  std::size_t evaluations_without_gain = 0;  ///< in a row; ends training at early_stopping_patience
  bool evaluation_is_due = false;  ///< a signal prevented this step's: the resumed run makes it

  nn::tally loss_since_log = {};  ///< of all ranks, since the last log line
  nn::tally loss_of_run = {};
  std::vector<record> log_history = {};  ///< the latest lines, each with its "step": see add_line
};

/// Adds a line, which has its "step", to the history. Every checkpoint holds the history, so older
/// lines are dropped beyond a limit; train.jsonl has all of them.
void add_line(trainer_state& state, record line);

/// The options that determine the order of an epoch's samples, as text: if two texts are equal,
/// samples_seen means the same samples.
[[nodiscard]] std::string data_order_of(const data::sampler_options& options);

/// Updates the best metric and the count for early stopping with an evaluation's metric. Returns
/// true if it is the best so far; an equal one is not. Source: EarlyStoppingCallback and
/// Trainer._determine_best_metric of Hugging Face's transformers.
[[nodiscard]] bool note_metric(trainer_state& state, double value, metric_goal goal,
                               double threshold);

/// The metric `name` of an evaluation, with or without "eval_" in front. Throws usage_error,
/// listing the names, if there is none.
[[nodiscard]] double metric_of(const record& line, const std::string& name);

/// How a run `fresh` differs from the one that saved `saved` at `path`, one sentence each.
[[nodiscard]] std::vector<std::string> differences(const trainer_state& saved,
                                                   const trainer_state& fresh,
                                                   const std::string& path);

/// The state with which a run `fresh` continues from `saved` at `path`. Throws usage_error if the
/// data set has another size.
[[nodiscard]] trainer_state resumed(trainer_state saved, const trainer_state& fresh,
                                    const std::string& path);

/// As trainer_state.json of a checkpoint has it.
[[nodiscard]] json::value to_json(const trainer_state& s);

/// The exact inverse. Throws json::error if a member is missing or has another type.
[[nodiscard]] trainer_state state_from(const json::value& object);

/// A user's object that checkpoints include: see trainer::add_state.
struct saved_object {
  std::function<void(checkpoint_parts&)> add;
  std::function<void(const saved_checkpoint&)> load;
  std::function<void(process_group&, int root)> broadcast;  ///< collective; see broadcast_state
};

/// The state in a trainer's checkpoint. Throws errc::bad_data if there is none.
[[nodiscard]] trainer_state state_in(const saved_checkpoint& saved);

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/state_impl.hpp>
#endif
