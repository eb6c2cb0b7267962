// evaluation: metrics of a model on a data set, over all ranks.
//
// During an evaluation the model is in evaluation mode and records no graph. The loader's
// distributed_sampler gives each rank its samples; padding samples in a last batch have weight 0
// and do not count. Collective: a forward pass may need all ranks, so no rank stops alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/data/dataset.hpp>
#include <parx/nn/evaluation_mode.hpp>
#include <parx/nn/metrics.hpp>
#include <parx/reduction/metrics.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

using nn::metric;
using nn::metrics;

/// Samples of a batch that count: its count(), else the sum of its weights, else its size().
template <typename Batch>
[[nodiscard]] double samples_in(const Batch& batch) {
  constexpr bool counts = requires { batch.count(); };
  constexpr bool has_weights = requires { data::sum_of_weights(batch.weights); };
  constexpr bool has_size = requires { batch.size(); };
  static_assert(counts || has_weights || has_size,
                "a batch for the trainer has count(), a tensor<float> weights or size(): see "
                "data/dataset.hpp");
  if constexpr (counts) {
    return static_cast<double>(batch.count());
  } else if constexpr (has_weights) {
    return static_cast<double>(data::sum_of_weights(batch.weights));
  } else if constexpr (has_size) {
    return static_cast<double>(batch.size());
  } else {
    return 0;
  }
}
/// Tokens of a batch that count; 0 for data that have none.
template <typename Batch>
[[nodiscard]] double tokens_in(const Batch& batch) {
  if constexpr (requires { batch.tokens(); }) {
    return static_cast<double>(batch.tokens());
  } else {
    return 0;
  }
}

/// Called on every rank after each batch of an evaluation: whether to skip the remaining batches.
/// If it returns true on any rank, all ranks stop. If empty, the ranks never stop early.
using stop_early = std::function<bool()>;

/// A type-erased evaluation, collective: returns this rank's metrics, followed by the numbers of
/// samples and batches as "samples" and "steps"; nullopt if the ranks stopped early.
using evaluate_function = std::function<std::optional<metrics>(const stop_early&)>;

namespace detail {

/// What a rank measures in an evaluation.
class evaluation_sums {
 public:
  /// The metrics of a batch with so many samples that count.
  void add(const metrics& found, double samples) {
    nn::add(figures_, found);
    samples_.sum += samples;
    batches_.sum += 1;
  }
  /// The metrics over all batches, then "samples" and "steps".
  [[nodiscard]] metrics all() &&;

 private:
  metrics figures_;
  nn::tally samples_, batches_;
};

/// Collective. The most batches that any rank has.
[[nodiscard]] inline std::size_t most_batches(process_group& job, std::size_t own, call_site site) {
  std::array<std::size_t, 1> most{own};
  parx::all_reduce(job, most, {.op = reduce_op::max}, site);
  return most[0];
}

}  // namespace detail

/// Model and loader are borrowed. All ranks of the job pass the same number of batches through the
/// model, which may communicate: a rank with fewer repeats its last batch without counting it
/// again.
template <typename Wrapper, typename Loader, typename Measure>
[[nodiscard]] evaluate_function make_evaluation(Wrapper& model, const Loader& loader,
                                                Measure measure, call_site site) {
  using batches = decltype(detail::dealt_to(model.data_group(), loader).epoch(0));
  using batch_type = decltype(*std::declval<batches&>().begin());
  constexpr bool are_named =
      std::is_convertible_v<std::invoke_result_t<Measure&, Wrapper&, batch_type>, metrics>;
  static_assert(are_named,
                "an evaluation returns its figures by name: [](auto& model, auto& batch) { return "
                "parx::nn::metrics{{\"loss\", cross_entropy(model(batch.x), batch.y)}}; }");
  if constexpr (!are_named) return {};
  else
    return [&model, &loader, site, measure = std::move(measure)](
               const stop_early& stops) mutable -> std::optional<metrics> {
      process_group& job = model.job_group();
      const nn::evaluation_mode quiet(model.module());
      detail::evaluation_sums sums;
      auto own = detail::dealt_to(model.data_group(), loader).epoch(0);
      const std::size_t most = detail::most_batches(job, own.size(), site);
      auto next = own.begin();
      for (std::size_t i = 0; i < most; ++i) {
        auto& batch = *next;
        const metrics found = measure(model, batch);
        if (i < own.size()) sums.add(found, samples_in(batch));
        if (i + 1 < own.size()) ++next;
        if (stops && on_any_rank(job, stops(), site)) return std::nullopt;
      }
      return std::move(sums).all();
    };
}

/// Collective. Runs an evaluation and adds the metrics of all ranks to `line`, then runtime,
/// samples_per_second and steps_per_second; each name is prefixed with `prefix`_. Returns false if
/// the ranks stopped early. `data` are the ranks with different samples, `job` all ranks.
[[nodiscard]] inline bool evaluate_into(record& line, process_group& data, process_group& job,
                                        const std::string& prefix, const evaluate_function& run,
                                        const stop_early& stops,
                                        call_site site = call_site::current()) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<metrics> found = run(stops);
  if (!found) return false;
  sum_over(data, job, *found, site);
  const double steps = found->back().value.sum / data.size();
  found->pop_back();
  const double samples = found->back().value.sum;
  found->pop_back();
  for (const metric& each : *found) line.set(prefix + "_" + each.name, each.value.mean());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  line.set(prefix + "_runtime", seconds);
  line.set(prefix + "_samples_per_second", samples / seconds);
  line.set(prefix + "_steps_per_second", steps / seconds);
  return true;
}

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

inline metrics evaluation_sums::all() && {
  figures_.emplace_back("samples", samples_);
  figures_.emplace_back("steps", batches_);
  return std::move(figures_);
}

}  // namespace parx::train::detail

namespace parx::inline PARX_ABI::train {

}  // namespace parx::train
