// evaluation: a data set, what is measured on it, and the figures over all ranks.
//
// The model is in evaluation mode and records no graph meanwhile. A loader over a
// distributed_sampler deals the samples out; those that only fill up a last batch have weight 0 and
// do not count.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <parx/autograd/no_grad.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
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

/// Asked after each batch of an evaluation: whether to leave the others out. Once yes, always yes.
using leave_off = std::function<bool()>;

/// An evaluation without its types: this rank's figures, then their samples and batches as
/// "samples" and "steps".
using evaluate_function = std::function<metrics(const leave_off&)>;

template <typename Wrapper, typename Loader, typename Measure>
[[nodiscard]] evaluate_function make_evaluation(Wrapper& model, const Loader& loader,
                                                Measure measure) {
  return [&model, &loader, measure = std::move(measure)](const leave_off& leaves_off) mutable {
    const evaluation_mode quiet(model.module());
    metrics figures;
    nn::tally samples, batches;
    for (auto& batch : loader.epoch(0)) {
      add(figures, measure(model, batch));
      samples.sum += samples_in(batch);
      batches.sum += 1;
      if (leaves_off()) break;
    }
    figures.emplace_back("samples", samples);
    figures.emplace_back("steps", batches);
    return figures;
  };
}

/// Collective. Runs it and adds what all ranks found to `line`, each name after `prefix`_: the
/// figures, then runtime, samples_per_second and steps_per_second. Returns false, and the line is
/// to be thrown away, where a rank has left off.
[[nodiscard]] inline bool evaluate_into(record& line, process_group& group,
                                        const std::string& prefix, const evaluate_function& run,
                                        const leave_off& leaves_off,
                                        call_site site = call_site::current()) {
  const auto start = std::chrono::steady_clock::now();
  metrics figures = run(leaves_off);
  figures.emplace_back("left off", nn::tally{.sum = leaves_off() ? 1.0 : 0.0, .count = 1});
  all_reduce(group, figures, site);
  const bool whole = figures.back().value.sum == 0;
  const double steps = figures[figures.size() - 2].value.sum / group.size();
  const double samples = figures[figures.size() - 3].value.sum;
  figures.resize(figures.size() - 3, metric("", nn::tally{}));
  for (const metric& each : figures) line.set(prefix + "_" + each.name, each.value.mean());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  line.set(prefix + "_runtime", seconds);
  line.set(prefix + "_samples_per_second", samples / seconds);
  line.set(prefix + "_steps_per_second", steps / seconds);
  return whole;
}

}  // namespace parx::train
