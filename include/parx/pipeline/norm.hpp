// The norm of a gradient whose parts lie on the stages: exact, and the same on all ranks.
//
//   const double norm = grad_norm(pipe, optimizer.targets());
//   optim::scale_grad(optimizer.targets(), norm, 1.0);
//
// Squares are added up exactly (square_sum), so the norm does not depend on the cut. Of parameters
// that several stages share, one rank counts them, and so of those that lie whole on ranks over
// which layers or, of sharded stages, all other parameters are cut.
#pragma once

#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/clip.hpp>
#include <parx/pipeline/pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Collective over the model's ranks (of sharded stages, the job's), after the step's gradients are
/// there.
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
