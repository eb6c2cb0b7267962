// explain_run: a summary of what a run is going to do.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/lr_schedule.hpp>
#include <parx/train/detail/samples_differ.hpp>
#include <parx/train/options.hpp>
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

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/explain_impl.hpp>
#endif
