// announce: the blocks of text that Hugging Face's Trainer and its scripts print around a run.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/core/json.hpp>
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
[[nodiscard]] json::object settings_of(const run_plan& plan, const trainer_options& options,
                                       std::uint64_t parameters, double lr);

/// Printed before the first step, and kept for the report; an earlier run has made `step` steps.
void announce(run_log& out, const run_plan& plan, const trainer_options& options,
              std::uint64_t parameters, double lr, std::uint64_t step);

/// Printed after the last step.
void print_metrics(run_log& out, const record& figures);

}  // namespace parx::train

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/announce_impl.hpp>
#endif
