// explain_run: a summary of what a run is going to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/explain.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/lr_schedule.hpp>
#include <parx/reduction/replica_tree.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/run_plan.hpp>

namespace parx::inline PARX_ABI::train {

namespace detail {

[[nodiscard]] inline std::string size_text(std::size_t count) {
  const auto bytes = static_cast<double>(count);
  if (bytes >= 1 << 30) return formatted("{:.2f} GiB", bytes / (1 << 30));
  if (bytes >= 1 << 20) return formatted("{:.1f} MiB", bytes / (1 << 20));
  return formatted("{:.1f} KiB", bytes / 1024);
}

/// "every 500 steps", "after each epoch" or "never".
[[nodiscard]] inline std::string frequency_text(strategy when, std::uint64_t steps) {
  if (when == strategy::epoch) return "after each epoch";
  return when == strategy::no || steps == 0 ? "never" : formatted("every {} steps", steps);
}

[[nodiscard]] inline std::string save_text(const trainer_options& o) {
  const bool chosen = o.save_strategy == strategy::steps && o.save_steps == save_steps_auto;
  return chosen ? "as often as pays," : frequency_text(o.save_strategy, o.save_steps);
}

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

/// "4 on 2 hosts (2 + 2)".
[[nodiscard]] inline std::string ranks_text(const std::vector<int>& host_of_rank) {
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
template <typename Wrapper>
[[nodiscard]] std::string sums_text(Wrapper& model, call_site site) {
  const int ranks = model.data_group().size();
  if (ranks == 1) return "none: there is one rank";
  if (const int replicas = replicas_in(model); replicas > 0) {
    const replica_plan plan(replicas, model.data_group().rank(), ranks);
    return formatted("{} sums along the tree of {} replicas: {:.2f} reduce_scatters a rank",
                     plan.all_sums(), replicas, static_cast<double>(plan.all_sums()) / ranks);
  }
  std::vector<std::string> buckets;
  double seconds = 0;
  for (std::size_t i = 0; i < model.bucket_count(); ++i) {
    const std::size_t bytes = model.bucket_bytes(i);
    for (const explanation& each :
         parx::explain(model.data_group(), operation::all_reduce, bytes, site)) {
      if (!each.chosen) continue;
      seconds += each.seconds;
      buckets.push_back(formatted("{} by {}", size_text(bytes), name_of(each.name)));
    }
  }
  return formatted("all_reduce of {}: {:.2f} ms predicted, behind backward",
                     joined_text(buckets), 1e3 * seconds);
}

/// What virtual replicas need beside the gradients; empty without.
template <typename Wrapper>
[[nodiscard]] std::string memory_of_replicas(Wrapper& model, std::size_t gradient_bytes) {
  const int replicas = replicas_in(model);
  if (replicas == 0) return {};
  const process_group& data = model.data_group();
  const replica_plan plan(replicas, data.rank(), data.size());
  const auto kept = static_cast<std::size_t>(plan.most_kept());
  const std::size_t received = plan.all_sums() * gradient_bytes / std::size_t(data.size());
  return formatted(", at most {} of sums of replicas", size_text(kept * gradient_bytes + received));
}

}  // namespace detail

/// Ranks and hosts, batch sizes, steps, memory of a rank without activations, and how the gradients
/// of a step will be summed. Collective if it is the group's first operation.
template <typename Wrapper, typename Optimizer>
[[nodiscard]] std::string explain_run(Wrapper& model, const Optimizer& /*optimizer*/,
                                      const run_plan& plan, const trainer_options& options,
                                      double lr, call_site site = call_site::current()) {
  std::size_t tensors = 0, values = 0, bytes = 0, gradient_bytes = 0;
  model.module().for_each_parameter([&](const std::string&, auto& p) {
    ++tensors;
    values += p.value().size();
    bytes += p.value().size() * sizeof(*p.value().data());
  });
  for (std::size_t i = 0; i < model.bucket_count(); ++i) gradient_bytes += model.bucket_bytes(i);
  std::size_t state_bytes = 0;
  if constexpr (requires { Optimizer::state_names.size(); })
    state_bytes = Optimizer::state_names.size() * bytes;
  using detail::size_text;

  std::string text;
  const auto line = [&](std::string_view name, const std::string& what) {
    text += formatted("{}  {:<14} {}", text.empty() ? "" : "\n", name, what);
  };
  line("ranks", detail::ranks_text(model.job_group().hosts()));
  line("batch", formatted("{} samples a {} x {} accumulated x {} {}s = {} samples a step",
                          plan.batch_size, plan.has_replicas ? "replica" : "rank",
                          plan.accumulation, plan.world, plan.has_replicas ? "replica" : "rank",
                          plan.global_batch()));
  line("steps", formatted("{} an epoch of {} samples, {} in all, {} epochs",
                          with_commas(plan.steps_per_epoch), with_commas(plan.samples),
                          with_commas(plan.steps), rounded(plan.epochs, 5)));
  line("learning rate",
       options.lr_schedule
           ? std::string("by lr_schedule")
           : formatted("{:.3g} after {} steps of warm-up, then {}", lr, plan.warmup_steps,
                       detail::decay_text(options.lr_scheduler_type)));
  line("products", options.bf16   ? "bfloat16"
                   : options.fp16 ? "float16 with a loss scale"
                                  : "as the parameters");
  line("parameters", formatted("{} in {} tensors", with_commas(values), tensors));
  line("memory",
       formatted("{} parameters + {} gradients + {} optimizer = {} a rank{}, and the activations",
                 size_text(bytes), size_text(gradient_bytes), size_text(state_bytes),
                 size_text(bytes + gradient_bytes + state_bytes),
                 detail::memory_of_replicas(model, gradient_bytes)));
  line("communication", detail::sums_text(model, site));
  line("log", detail::frequency_text(strategy::steps, options.logging_steps));
  line("evaluate",
       detail::frequency_text(options.eval_strategy,
                              options.eval_steps > 0 ? options.eval_steps : options.logging_steps));
  line("save", options.output_dir.empty()
                   ? std::string("never: no output_dir")
                   : formatted("{} {} into \"{}\"{}", detail::save_text(options),
                               size_text(bytes + state_bytes), options.output_dir,
                               options.save_total_limit > 0
                                   ? formatted(", {} kept", options.save_total_limit)
                                   : ""));
  return text;
}

}  // namespace parx::train
