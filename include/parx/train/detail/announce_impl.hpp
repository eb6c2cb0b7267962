// Definitions of announce.hpp.
#pragma once

#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/train/announce.hpp>

namespace parx::inline PARX_ABI::train {

PARX_INLINE void announce(run_log& out, const run_plan& plan, const trainer_options& options,
                          std::uint64_t parameters, std::uint64_t step) {
  out.print("***** Running training *****");
  const auto line = [&](std::string_view name, std::uint64_t value) {
    out.print(formatted("  {} = {}", name, with_commas(value)));
  };
  line("Num examples", plan.samples);
  line("Num Epochs", plan.epochs);
  line("Instantaneous batch size per device", plan.batch_size);
  line("Total train batch size (w. parallel, distributed & accumulation)", plan.global_batch());
  line("Gradient Accumulation steps", plan.accumulation);
  line("Total optimization steps", plan.steps);
  line("Number of trainable parameters", parameters);
  if (step > 0) line("Continuing training from global step", step);
  if (step == 0 && options.resume_from_checkpoint == resume::latest) {
    out.print(formatted("  No checkpoint in \"{}\" to resume from: training starts at step 0",
                        options.output_dir));
  }
  if (step >= plan.steps) {
    out.print(
        formatted("  Nothing is left to train: the run is at step {} of {}; more max_steps "
                  "or num_train_epochs would go on",
                  with_commas(step), with_commas(plan.steps)));
  }
}

PARX_INLINE void print_metrics(run_log& out, const record& figures) {
  out.print("***** train metrics *****");
  for (const auto& [name, value] : figures.entries()) {
    out.print(formatted("  {:<24} = {:>10}", name, formatted("{}", rounded(value, 5))));
  }
}

}  // namespace parx::train
