// trainer_state: the progress of a run, which trainer_state.json keeps beside a checkpoint's
// tensors.
//
// In the file, members that Hugging Face's trainer_state.json also has are named as there.
// `samples_seen` alone determines a run's position in its data, at any world size
// (data::distributed_sampler::state). A value type, equal on all ranks at all times, because
// everything in it comes from sums over all ranks.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
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
inline void add_line(trainer_state& state, record line) {
  constexpr std::size_t most = 20'000;  // some 10 MB of JSON
  auto& lines = state.log_history;
  if (lines.size() >= most) lines.erase(lines.begin(), lines.begin() + most / 2);
  lines.push_back(std::move(line));
}

/// The options that determine the order of an epoch's samples, as text: if two texts are equal,
/// samples_seen means the same samples.
[[nodiscard]] inline std::string data_order_of(const data::sampler_options& options) {
  const auto& groups = options.group_by_length;
  std::string text = options.order == data::sample_order::sequential
                         ? "sequential"
                         : formatted("shuffled with seed {}", options.seed);
  if (groups.lengths != nullptr) {
    text += formatted(", grouped by length with batch {}, pool {} and seed {}", groups.batch,
                      groups.pool, options.seed);
  }
  if (options.remainder == data::remainder::repeat) text += ", the remainder repeated";
  if (options.remainder == data::remainder::drop) text += ", the remainder dropped";
  return text;
}

/// Updates the best metric and the count for early stopping with an evaluation's metric. Returns
/// true if it is the best so far; an equal one is not. Source: EarlyStoppingCallback and
/// Trainer._determine_best_metric of Hugging Face's transformers.
[[nodiscard]] inline bool note_metric(trainer_state& state, double value, metric_goal goal,
                                      double threshold) {
  const bool better =
      std::isfinite(value) && (!state.best_metric || is_better(value, *state.best_metric, goal));
  const bool gained =
      better && (!state.best_metric || std::abs(value - *state.best_metric) > threshold);
  state.evaluations_without_gain = gained ? 0 : state.evaluations_without_gain + 1;
  if (better) {
    state.best_metric = value;
    state.best_global_step = state.global_step;
  }
  return better;
}

/// The metric `name` of an evaluation, with or without "eval_" in front. Throws usage_error,
/// listing the names, if there is none.
[[nodiscard]] inline double metric_of(const record& line, const std::string& name) {
  if (const auto value = line.find(name)) return *value;
  if (const auto value = line.find("eval_" + name)) return *value;
  throw_usage("trainer: metric_for_best_model is \"{}\", but the evaluation gave {}", name,
              line.names());
}

/// How a run `fresh` differs from the one that saved `saved` at `path`, one sentence each.
[[nodiscard]] inline std::vector<std::string> differences(const trainer_state& saved,
                                                          const trainer_state& fresh,
                                                          const std::string& path) {
  std::vector<std::string> found;
  if (saved.global_batch != fresh.global_batch) {
    found.push_back(formatted(
        "\"{}\" was made with {} samples a step on {} ranks, this run takes {} on {}: it goes on "
        "from there, but not as that run would have. Ranks x batch_size x "
        "gradient_accumulation_steps = {} would",
        path, saved.global_batch, saved.world_size, fresh.global_batch, fresh.world_size,
        saved.global_batch));
  }
  if (saved.seed != fresh.seed) {
    found.push_back(formatted(
        "\"{}\" was made with seed {}, this run has {}: it goes on from there with other dropout",
        path, saved.seed, fresh.seed));
  }
  const bool both_known = !saved.data_order.empty() && !fresh.data_order.empty();
  if (both_known && saved.data_order != fresh.data_order) {
    found.push_back(formatted(
        "\"{}\" was made with its samples {}, this run takes them {}: in the epoch that it goes on "
        "with some come twice and some never. With group_by_length, keep batch what all ranks take "
        "in one step, accumulation included",
        path, saved.data_order, fresh.data_order));
  }
  return found;
}

/// The state with which a run `fresh` continues from `saved` at `path`. Throws usage_error if the
/// data set has another size.
[[nodiscard]] inline trainer_state resumed(trainer_state saved, const trainer_state& fresh,
                                           const std::string& path) {
  require(saved.num_samples == fresh.num_samples,
          "trainer: \"{}\" was made with a data set of {} samples, this one has {}; a run resumes "
          "on its own data",
          path, saved.num_samples, fresh.num_samples);
  saved.max_steps = fresh.max_steps;
  saved.global_batch = fresh.global_batch;
  saved.world_size = fresh.world_size;
  saved.seed = fresh.seed;
  saved.data_order = fresh.data_order;
  return saved;
}

/// As trainer_state.json of a checkpoint has it.
[[nodiscard]] inline json::value to_json(const trainer_state& s) {
  const auto pair_of = [](const nn::tally& t) { return json::array{t.sum, t.count}; };
  json::array history;
  for (const record& line : s.log_history) history.push_back(to_json(line));
  json::object object;
  object["best_global_step"] = s.best_global_step;
  object["best_metric"] = s.best_metric ? json::value(*s.best_metric) : json::value();
  object["best_model_checkpoint"] = s.best_model_checkpoint;
  object["epoch"] = s.epoch;
  object["global_step"] = s.global_step;
  object["max_steps"] = s.max_steps;
  object["samples_seen"] = s.samples_seen;
  object["num_train_samples"] = s.num_samples;
  object["total_train_batch_size"] = s.global_batch;
  object["world_size"] = s.world_size;
  object["seed"] = s.seed;
  object["data_order"] = s.data_order;
  object["early_stopping_patience_counter"] = s.evaluations_without_gain;
  object["evaluation_is_due"] = s.evaluation_is_due;
  object["loss_since_log"] = pair_of(s.loss_since_log);
  object["loss_of_run"] = pair_of(s.loss_of_run);
  object["log_history"] = std::move(history);
  return object;
}

/// The exact inverse. Throws json::error if a member is missing or has another type.
[[nodiscard]] inline trainer_state state_from(const json::value& object) {
  const auto tally_of = [&](const char* name) {
    const json::array& pair = object.at(name).elements();
    if (pair.size() != 2) throw json::error(formatted("\"{}\" is not [sum, count]", name));
    // JSON has no NaN: after a loss that was not a number the sum is written as null.
    const double sum =
        pair[0].is_null() ? std::numeric_limits<double>::quiet_NaN() : pair[0].as<double>();
    return nn::tally{.sum = sum, .count = pair[1].as<double>()};
  };
  trainer_state s;
  s.best_global_step = object.as<std::uint64_t>("best_global_step");
  if (!object.at("best_metric").is_null()) s.best_metric = object.as<double>("best_metric");
  s.best_model_checkpoint = object.at("best_model_checkpoint").text();
  s.epoch = object.as<double>("epoch");
  s.global_step = object.as<std::uint64_t>("global_step");
  s.max_steps = object.as<std::uint64_t>("max_steps");
  s.samples_seen = object.as<std::uint64_t>("samples_seen");
  s.num_samples = object.as<std::size_t>("num_train_samples");
  s.global_batch = object.as<std::size_t>("total_train_batch_size");
  s.world_size = object.as<std::size_t>("world_size");
  s.seed = object.as<std::uint64_t>("seed");
  s.data_order = object.at("data_order").text();
  s.evaluations_without_gain = object.as<std::size_t>("early_stopping_patience_counter");
  s.evaluation_is_due = object.as<bool>("evaluation_is_due");
  s.loss_since_log = tally_of("loss_since_log");
  s.loss_of_run = tally_of("loss_of_run");
  for (const json::value& line : object.at("log_history").elements()) {
    s.log_history.push_back(record_from(line));
  }
  return s;
}

/// A user's object that checkpoints include: see trainer::add_state.
struct saved_part {
  std::function<void(checkpoint_parts&)> add;
  std::function<void(const saved_checkpoint&)> load;
  std::function<void(process_group&, int root)> broadcast;  ///< collective; see broadcast_state
};

/// The state in a trainer's checkpoint. Throws errc::bad_data if there is none.
[[nodiscard]] inline trainer_state state_in(const saved_checkpoint& saved) {
  try {
    return state_from(saved.json("trainer_state"));
  } catch (const json::error& wrong) {
    throw_error(errc::bad_data, "\"{}\" has a trainer_state.json that no trainer wrote: {}",
                saved.path(), wrong.what());
  }
}

}  // namespace parx::train
