// explain_run: a summary of what a run is going to do.
#pragma once

#include <cstddef>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/explain.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/lr_schedule.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/run_plan.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

[[nodiscard]] constexpr std::string_view decay_text(optim::decay form) noexcept {
  switch (form) {
    case optim::decay::constant: return "constant";
    case optim::decay::linear: return "linear to 0";
    case optim::decay::cosine: return "cosine to 0";
    case optim::decay::polynomial: return "polynomial to 0";
    case optim::decay::step: break;
  }
  return "in steps";
}

/// What a rank has of a model and its optimizer.
struct model_sizes {
  std::size_t tensors = 0;  ///< parameters, of `values` values in `bytes` bytes
  std::size_t values = 0;
  std::size_t bytes = 0;
  std::size_t optimizer_bytes = 0;
  std::vector<std::size_t> buckets = {};  ///< bytes of each bucket of gradients
  int replicas = 0;                       ///< the layout's virtual ones
};

/// explain_run for a model of any type.
[[nodiscard]] std::string run_text(const model_sizes& sizes, process_group& data,
                                   const process_group& job, const run_plan& plan,
                                   const trainer_options& options, double lr, call_site site);

}  // namespace detail

/// Ranks and hosts, batch sizes, steps, memory of a rank without activations, and how the gradients
/// of a step will be summed. Collective if it is the group's first operation.
template <typename Wrapper, typename Optimizer>
[[nodiscard]] std::string explain_run(Wrapper& model, const Optimizer& /*optimizer*/,
                                      const run_plan& plan, const trainer_options& options,
                                      double lr, call_site site = call_site::current()) {
  detail::model_sizes sizes;
  sizes.replicas = detail::replicas_in(model);
  model.module().for_each_parameter([&sizes](const std::string&, auto& p) {
    ++sizes.tensors;
    sizes.values += p.value().size();
    sizes.bytes += p.value().size() * sizeof(*p.value().data());
  });
  for (std::size_t i = 0; i < model.bucket_count(); ++i)
    sizes.buckets.push_back(model.bucket_bytes(i));
  if constexpr (requires { Optimizer::state_names.size(); })
    sizes.optimizer_bytes = Optimizer::state_names.size() * sizes.bytes;
  return detail::run_text(sizes, model.data_group(), model.job_group(), plan, options, lr, site);
}

}  // namespace parx::train

namespace parx::inline PARX_ABI::train::detail {

inline std::string size_text(std::size_t count) {
  const auto bytes = static_cast<double>(count);
  if (bytes >= 1 << 30) return formatted("{:.2f} GiB", bytes / (1 << 30));
  if (bytes >= 1 << 20) return formatted("{:.1f} MiB", bytes / (1 << 20));
  return formatted("{:.1f} KiB", bytes / 1024);
}

/// "every 500 steps", "after each epoch" or "never".
inline std::string frequency_text(strategy when, std::uint64_t steps) {
  if (when == strategy::epoch) return "after each epoch";
  return when == strategy::no || steps == 0 ? "never" : formatted("every {} steps", steps);
}

inline std::string save_text(const trainer_options& o) {
  const bool chosen = o.save_strategy == strategy::steps && o.save_steps == save_steps_auto;
  return chosen ? "as often as pays," : frequency_text(o.save_strategy, o.save_steps);
}

/// "4 on 2 hosts (2 + 2)".
inline std::string ranks_text(const std::vector<int>& host_of_rank) {
  std::vector<int> ranks;
  for (const int host : host_of_rank) {
    const auto index = static_cast<std::size_t>(host);
    if (ranks.size() <= index) ranks.resize(index + 1);
    ++ranks[index];
  }
  if (ranks.size() < 2) return formatted("{} on one host", host_of_rank.size());
  std::string sum;
  for (const int each : ranks) sum += formatted("{}{}", sum.empty() ? "" : " + ", each);
  return formatted("{} on {} hosts ({})", host_of_rank.size(), ranks.size(), sum);
}

/// How the gradients of a step are summed, and how long that is predicted to take. Collective if it
/// is the group's first operation.
inline std::string sums_text(const model_sizes& sizes, process_group& data, call_site site) {
  const int ranks = data.size();
  if (ranks == 1) return "none: there is one rank";
  if (const int replicas = sizes.replicas; replicas > 0) {
    const replica_plan plan(replicas, data.rank(), ranks);
    return formatted("{} sums along the tree of {} replicas: {:.2f} reduce_scatters a rank",
                     plan.all_sums(), replicas, static_cast<double>(plan.all_sums()) / ranks);
  }
  std::vector<std::string> buckets;
  double seconds = 0;
  for (const std::size_t bytes : sizes.buckets) {
    for (const explanation& each : parx::explain(data, operation::all_reduce, bytes, site)) {
      if (!each.chosen) continue;
      seconds += each.seconds;
      buckets.push_back(formatted("{} by {}", size_text(bytes), name_of(each.name)));
    }
  }
  return formatted("all_reduce of {}: {:.2f} ms predicted, behind backward", joined_text(buckets),
                   1e3 * seconds);
}

/// What virtual replicas need beside the gradients; empty without.
inline std::string memory_of_replicas(const model_sizes& sizes, const process_group& data,
                                      std::size_t gradient_bytes) {
  if (sizes.replicas == 0) return {};
  const replica_plan plan(sizes.replicas, data.rank(), data.size());
  const auto kept = static_cast<std::size_t>(plan.most_kept());
  const std::size_t received = plan.all_sums() * gradient_bytes / std::size_t(data.size());
  return formatted(", at most {} of sums of replicas", size_text(kept * gradient_bytes + received));
}

inline std::string run_text(const model_sizes& sizes, process_group& data, const process_group& job,
                            const run_plan& plan, const trainer_options& options, double lr,
                            call_site site) {
  const std::size_t gradient_bytes =
      std::accumulate(sizes.buckets.begin(), sizes.buckets.end(), std::size_t{0});
  std::string text;
  const auto line = [&](std::string_view name, const std::string& what) {
    text += formatted("{}  {:<14} {}", text.empty() ? "" : "\n", name, what);
  };
  line("ranks", ranks_text(job.hosts()));
  line("batch",
       formatted("{} samples a {} x {} accumulated x {} {}s = {} samples a step", plan.batch_size,
                 plan.has_replicas ? "replica" : "rank", plan.accumulation, plan.world,
                 plan.has_replicas ? "replica" : "rank", plan.global_batch()));
  line("steps", formatted("{} an epoch of {} samples, {} in all, {} epochs",
                          with_commas(plan.steps_per_epoch), with_commas(plan.samples),
                          with_commas(plan.steps), rounded(plan.epochs, 5)));
  line("learning rate", options.lr_schedule
                            ? std::string("by lr_schedule")
                            : formatted("{:.3g} after {} steps of warm-up, then {}", lr,
                                        plan.warmup_steps, decay_text(options.lr_scheduler_type)));
  line("products", options.bf16   ? formatted("bfloat16 ({})", bfloat16_products())
                   : options.fp16 ? "float16 with a loss scale"
                                  : "as the parameters");
  line("parameters", formatted("{} in {} tensors", with_commas(sizes.values), sizes.tensors));
  line(
      "memory",
      formatted("{} parameters + {} gradients + {} optimizer = {} a rank{}, and the activations",
                size_text(sizes.bytes), size_text(gradient_bytes), size_text(sizes.optimizer_bytes),
                size_text(sizes.bytes + gradient_bytes + sizes.optimizer_bytes),
                memory_of_replicas(sizes, data, gradient_bytes)));
  line("communication", sums_text(sizes, data, site));
  line("log", frequency_text(strategy::steps, options.logging_steps));
  line("evaluate",
       frequency_text(options.eval_strategy,
                      options.eval_steps > 0 ? options.eval_steps : options.logging_steps));
  line("save", options.output_dir.empty()
                   ? std::string("never: no output_dir")
                   : formatted("{} {} into \"{}\"{}", save_text(options),
                               size_text(sizes.bytes + sizes.optimizer_bytes), options.output_dir,
                               options.save_total_limit > 0
                                   ? formatted(", {} kept", options.save_total_limit)
                                   : ""));
  return text;
}

}  // namespace parx::train::detail
