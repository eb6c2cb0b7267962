// evaluation: a data set, what is measured on it, and the figures over all ranks.
//
// The model is in evaluation mode and records no graph meanwhile. A loader over a
// distributed_sampler deals the samples out; those that only fill up a last batch have weight 0 and
// do not count. Collective: a forward pass may need all ranks, so no rank leaves off alone.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/no_grad.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/train/detail/own_samples.hpp>
#include <parx/train/metrics.hpp>
#include <parx/train/record.hpp>

namespace parx::inline PARX_ABI::train {

/// Samples of a batch that count.
template <typename Batch>
[[nodiscard]] double samples_in(const Batch& batch) {
  if constexpr (requires { batch.count(); }) {
    return static_cast<double>(batch.count());
  } else {
    return static_cast<double>(batch.size());
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

/// Puts a module's random layers to rest while it lives; then each is in the mode that it was in.
template <typename Module>
class [[nodiscard]] evaluation_mode {
 public:
  explicit evaluation_mode(Module& module) : module_(module) {
    if constexpr (has_parts) were_training_ = module.training_modes();
    if constexpr (requires { module.eval(); }) module.eval();
  }
  ~evaluation_mode() {
    if constexpr (has_parts) {
      module_.set_training_modes(were_training_);
    } else if constexpr (requires { module_.train(); }) {
      module_.train();
    }
  }
  evaluation_mode(const evaluation_mode&) = delete;
  evaluation_mode& operator=(const evaluation_mode&) = delete;

 private:
  static constexpr bool has_parts = requires(Module& m) { m.training_modes(); };

  Module& module_;
  std::vector<bool> were_training_;
  no_grad guard_;
};

/// Asked on every rank after each batch of an evaluation: whether to leave out what is left. All
/// ranks do where one says so. Empty: never, and nobody asks.
using leave_off = std::function<bool()>;

/// An evaluation without its types, collective: this rank's figures, then their samples and batches
/// as "samples" and "steps"; none where the ranks left off.
using evaluate_function = std::function<std::optional<metrics>(const leave_off&)>;

/// Model and loader are borrowed. All ranks of the job pass the same number of batches through the
/// model, which may communicate: a rank with fewer goes on with its last one, which it does not
/// count again.
template <typename Wrapper, typename Loader, typename Measure>
[[nodiscard]] evaluate_function make_evaluation(Wrapper& model, const Loader& loader,
                                                Measure measure, call_site site) {
  return [&model, &loader, site, measure = std::move(measure)](
             const leave_off& leaves_off) mutable -> std::optional<metrics> {
    process_group& job = model.job_group();
    const evaluation_mode quiet(model.module());
    metrics figures;
    nn::tally samples, batches;
    auto own = detail::dealt_to(model.data_group(), loader).epoch(0);
    std::array<std::size_t, 1> most{own.size()};
    parx::all_reduce(job, most, {.op = reduce_op::max}, site);
    auto next = own.begin();
    for (std::size_t i = 0; i < most[0]; ++i) {
      auto& batch = *next;
      const metrics found = measure(model, batch);
      if (i < own.size()) {
        add(figures, found);
        samples.sum += samples_in(batch);
        batches.sum += 1;
      }
      if (i + 1 < own.size()) ++next;
      if (leaves_off && on_any_rank(job, leaves_off(), site)) return std::nullopt;
    }
    figures.emplace_back("samples", samples);
    figures.emplace_back("steps", batches);
    return figures;
  };
}

/// Collective. Runs it and adds what all ranks found to `line`, each name after `prefix`_: the
/// figures, then runtime, samples_per_second and steps_per_second. Returns false where the ranks
/// left off. `data` are the ranks with samples of their own, `job` all.
[[nodiscard]] inline bool evaluate_into(record& line, process_group& data, process_group& job,
                                        const std::string& prefix, const evaluate_function& run,
                                        const leave_off& leaves_off,
                                        call_site site = call_site::current()) {
  const auto start = std::chrono::steady_clock::now();
  std::optional<metrics> found = run(leaves_off);
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
