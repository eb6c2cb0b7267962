// Definitions of state.hpp.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/state.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE void add_line(trainer_state& state, record line) {
  constexpr std::size_t most = 20'000;  // some 10 MB of JSON
  auto& lines = state.log_history;
  if (lines.size() >= most) lines.erase(lines.begin(), lines.begin() + most / 2);
  lines.push_back(std::move(line));
}

PARX_INLINE std::string data_order_of(const data::sampler_options& options) {
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

PARX_INLINE bool note_metric(trainer_state& state, double value, metric_goal goal,
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

PARX_INLINE double metric_of(const record& line, const std::string& name) {
  if (const auto value = line.find(name)) return *value;
  if (const auto value = line.find("eval_" + name)) return *value;
  throw_usage("trainer: metric_for_best_model is \"{}\", but the evaluation gave {}", name,
              line.names());
}

PARX_INLINE std::vector<std::string> differences(const trainer_state& saved,
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

PARX_INLINE trainer_state resumed(trainer_state saved, const trainer_state& fresh,
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

PARX_INLINE json::value to_json(const trainer_state& s) {
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

PARX_INLINE trainer_state state_from(const json::value& object) {
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

PARX_INLINE trainer_state state_in(const saved_checkpoint& saved) {
  try {
    return state_from(saved.json("trainer_state"));
  } catch (const json::error& wrong) {
    throw_error(errc::bad_data, "\"{}\" has a trainer_state.json that no trainer wrote: {}",
                saved.path(), wrong.what());
  }
}

}  // namespace parx::train
