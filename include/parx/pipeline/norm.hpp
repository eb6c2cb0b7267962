// The norm of a pipeline's gradient, over all stages: exact, and the same on all ranks.
//
//   const double norm = grad_norm(pipe, optimizer.targets());
//   optim::scale_grad(optimizer.targets(), norm, 1.0);
//
// Squares are added up exactly (square_sum), so the norm does not depend on the cut. A parameter
// that several ranks have (because stages share it, or because it is not cut like others over the
// tensor-parallel or data-parallel ranks) is counted by one of them.
#pragma once

#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
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

}  // namespace parx
