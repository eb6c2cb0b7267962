// The norm of a pipeline's gradient, over all stages, and clipping by it: exact, and the same on
// all ranks.
//
//   clip_grad_norm(pipe, optimizer.targets(), 1.0);
//
// Squares are added up exactly (square_sum), so the norm does not depend on the cut. A parameter
// that several ranks have (because stages share it, or because it is not cut like others over the
// tensor-parallel or data-parallel ranks) is counted by one of them.
#pragma once

#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/clip.hpp>
#include <parx/pipeline/pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the model's ranks (the job's, if stages are sharded), after a step.
template <typename Model, typename Input, typename T>
[[nodiscard]] double grad_norm(pipeline<Model, Input, T>& pipe,
                               const std::vector<optim::target<T>>& targets,
                               call_site site = call_site::current()) {
  std::vector<optim::target<T>> counted;
  for (const optim::target<T>& each : targets) {
    const std::string& name = each.name();
    const bool is_counted_here = (pipe.tensor_group().rank() == 0 || pipe.is_cut(name)) &&
                                 (!pipe.is_sharded() || pipe.replica_of(name).index == 0);
    if (is_counted_here && pipe.user_of(name).index == 0) counted.push_back(each);
  }
  auto squares = optim::grad_squares(counted);
  all_reduce(*pipe.gradient_group(), squares.words(), {}, site);
  return squares.norm();
}

/// Collective as grad_norm. Multiplies all gradients by max_norm / (norm + 1e-6) if that is below
/// 1; returns the norm before. Throws usage_error unless max_norm is positive, and parx::error if
/// the norm is not finite and `found` asks for that.
template <typename Model, typename Input, typename T>
double clip_grad_norm(pipeline<Model, Input, T>& pipe,
                      const std::vector<optim::target<T>>& targets, double max_norm,
                      optim::nonfinite found = optim::nonfinite::scale,
                      call_site site = call_site::current()) {
  require(max_norm > 0, "clip_grad_norm: the limit must be positive, not {}", max_norm);
  const double norm = grad_norm(pipe, targets, site);
  optim::require_usable_norm(norm, found);
  optim::scale_grad(targets, norm, max_norm);
  return norm;
}

}  // namespace parx
