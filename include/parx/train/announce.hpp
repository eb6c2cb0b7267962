// announce: the blocks of text that Hugging Face's Trainer and its scripts print around a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>
#include <parx/train/explain.hpp>
#include <parx/train/options.hpp>
#include <parx/train/record.hpp>
#include <parx/train/run_log.hpp>
#include <parx/train/run_plan.hpp>

namespace parx::inline PARX_ABI::train {

/// The number of values in all parameters of a model, of an nn::module or of any other kind.
template <typename Module>
[[nodiscard]] std::size_t parameter_count(Module& module) {
  if constexpr (requires { module.parameter_count(); }) {
    return module.parameter_count();
  } else {
    std::size_t count = 0;
    module.for_each_parameter([&](const std::string&, auto& p) { count += p.value().size(); });
    return count;
  }
}

/// What a report shows of a run's settings. `lr` is the highest learning rate.
[[nodiscard]] inline json::object settings_of(const run_plan& plan, const trainer_options& options,
                                              std::uint64_t parameters, double lr) {
  json::object s;
  s["parameters"] = with_commas(parameters);
  s["samples of an epoch"] = with_commas(plan.samples);
  s["batch"] =
      formatted("{} = {} x {} {}{}", plan.global_batch(), plan.batch_size, plan.world,
                plan.has_replicas ? "replicas" : "ranks",
                plan.accumulation > 1 ? formatted(" x {} accumulated", plan.accumulation) : "");
  s["epochs"] = formatted("{}", rounded(plan.epochs, 5));
  s["steps"] = with_commas(plan.steps);
  s["learning rate"] = options.lr_schedule ? "by lr_schedule" : formatted("{:.4g}", lr);
  if (!options.lr_schedule) {
    s["schedule"] = formatted("{} steps of warm-up, then {}", with_commas(plan.warmup_steps),
                              detail::decay_text(options.lr_scheduler_type));
  }
  s["products"] = options.bf16   ? formatted("bfloat16 ({})", bfloat16_products())
                  : options.fp16 ? "float16"
                                 : "as the parameters";
  s["max_grad_norm"] = formatted("{:.4g}", options.max_grad_norm);
  s["seed"] = formatted("{}", options.seed);
  // Read by parx_slurm scale.
  s["hosts"] = std::to_string(plan.hosts);
  s["ranks"] = std::to_string(plan.ranks);
  s["threads of a rank"] = std::to_string(get_num_threads());
  return s;
}

/// Printed before the first step, and kept for the report; an earlier run has made `step` steps.
inline void announce(run_log& out, const run_plan& plan, const trainer_options& options,
                     std::uint64_t parameters, double lr, std::uint64_t step) {
  if (step < plan.steps) out.keep_settings(settings_of(plan, options, parameters, lr));
  out.print("***** Running training *****");
  const auto line = [&](std::string_view name, std::uint64_t value) {
    out.print(formatted("  {} = {}", name, with_commas(value)));
  };
  line("Num examples", plan.samples);
  out.print(formatted("  Num Epochs = {}", rounded(plan.epochs, 5)));
  line("Instantaneous batch size per device", plan.batch_size);
  line("Total train batch size (w. parallel, distributed & accumulation)", plan.global_batch());
  line("Gradient Accumulation steps", plan.accumulation);
  line("Total optimization steps", plan.steps);
  line("Number of trainable parameters", parameters);
  if (options.bf16) out.print(formatted("  Products = bfloat16 ({})", bfloat16_products()));
  if (step > 0) line("Continuing training from global step", step);
  if (step == 0 && options.resume_from_checkpoint == resume::latest) {
    out.print(formatted("  No checkpoint in \"{}\" to resume from: training starts at step 0",
                        options.output_dir));
  }
  if (step >= plan.steps) {
    out.print(
        formatted("  Nothing is left to train: the run is at step {} of {}; more {} would go on",
                  with_commas(step), with_commas(plan.steps), options.words.length));
  }
}

/// Printed after the last step.
inline void print_metrics(run_log& out, const record& figures) {
  out.print("***** train metrics *****");
  for (const auto& [name, value] : figures.entries()) {
    out.print(formatted("  {:<24} = {:>10}", name, formatted("{}", rounded(value, 5))));
  }
}

}  // namespace parx::train
