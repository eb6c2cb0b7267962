// trainer_state: how far a run is: what trainer_state.json keeps beside a checkpoint's tensors.
//
// The members that Hugging Face's trainer_state.json has carry its names there. `samples_seen` is
// the one number that places a run in its data, at any world size
// (data::distributed_sampler::state). A value; equal on all ranks at all times, because everything
// in it comes from sums over all ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>
#include <parx/data/sampler.hpp>
#include <parx/nn/loss.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

struct trainer_state {
  std::uint64_t global_step = 0;   ///< optimizer steps done
  std::uint64_t samples_seen = 0;  ///< of all ranks and epochs
  double epoch = 0;                ///< passes over the data, with the part of the present one
  std::uint64_t max_steps = 0;     ///< that the run wants to make
  std::size_t num_samples = 0;     ///< in an epoch
  std::size_t global_batch = 0;    ///< samples of one step, over all ranks
  std::size_t world_size = 1;      ///< of the run that wrote this
  std::uint64_t seed = 0;
  std::string data_order = {};  ///< of an epoch: see data_order_of

  std::optional<double> best_metric = std::nullopt;
  std::uint64_t best_global_step = 0;
  std::string best_model_checkpoint = {};
  std::size_t evaluations_without_gain = 0;  ///< in a row; ends training at early_stopping_patience
  bool evaluation_is_due = false;  ///< of this step: a signal came first, and who resumes makes it

  nn::tally loss_since_log = {};  ///< of all ranks; what the next line adds to
  nn::tally loss_of_run = {};
  std::vector<record> log_history = {};  ///< the latest lines, each with its "step": see remember
};

/// Adds a line, which has its "step". Every checkpoint holds the history and is read as a whole, so
/// of many lines the older ones go, which are all in train.jsonl.
void remember(trainer_state& state, record line);

/// What makes the order of an epoch's samples, besides the data: with the same words samples_seen
/// means the same samples.
[[nodiscard]] std::string data_order_of(const data::sampler_options& options);

/// Takes an evaluation's figure into account; true where it is the best so far. Equality is no
/// gain. Source: EarlyStoppingCallback and Trainer._determine_best_metric of Hugging Face's
/// transformers.
[[nodiscard]] bool note_metric(trainer_state& state, double value, bool greater_is_better,
                               double threshold);

/// The figure of an evaluation that `name` means, with or without "eval_" in front. Throws
/// usage_error with those that there are.
[[nodiscard]] double metric_of(const record& line, const std::string& name);

/// What makes a run `fresh` differ from the one that left `saved` at `path`, in a sentence each.
[[nodiscard]] std::vector<std::string> differences(const trainer_state& saved,
                                                   const trainer_state& fresh,
                                                   const std::string& path);

/// The state that a run `fresh` goes on with after it has found `saved` at `path`. Throws
/// usage_error where the data are others.
[[nodiscard]] trainer_state resumed(trainer_state saved, const trainer_state& fresh,
                                    const std::string& path);

[[nodiscard]] json::value to_json(const trainer_state& s);

/// The inverse, to the last bit. Throws json::error where something is missing or of another kind.
[[nodiscard]] trainer_state state_from(const json::value& object);

/// Something of the user's that checkpoints keep.
struct saved_part {
  std::function<void(checkpoint_parts&)> add;
  std::function<void(const saved_checkpoint&)> load;
  std::function<void(process_group&, int root)> broadcast;  ///< collective; see broadcast_state
};

/// The state in a trainer's checkpoint. Throws errc::bad_data where there is none.
[[nodiscard]] trainer_state state_in(const saved_checkpoint& saved);

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/state_impl.hpp>
#endif
