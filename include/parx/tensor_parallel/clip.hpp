// clip_grad_norm for a tensor_parallel: the exact norm of the whole gradient, of which each rank
// has a part. The result is the same on all ranks, and the same as in one process.
#pragma once

#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/optim/clip.hpp>
#include <parx/tensor_parallel/tensor_parallel.hpp>

namespace parx::inline PARX_ABI {

/// Collective over gradient_group(). The norm of the whole gradient, summed exactly; parameters
/// that several ranks have count once.
template <typename Inner, typename T>
[[nodiscard]] double grad_norm(tensor_parallel<Inner>& wrapper,
                               const std::vector<optim::target<T>>& targets,
                               call_site site = call_site::current()) {
  std::vector<optim::target<T>> counted;
  for (const optim::target<T>& each : targets) {
    if (wrapper.is_counted(each.name())) counted.push_back(each);
  }
  square_sum squares = optim::grad_squares(counted);
  all_reduce(*wrapper.gradient_group(), squares.words(), {}, site);
  return squares.norm();
}

/// Collective. Multiplies all gradients by max_norm / (norm + 1e-6) if that is below 1; returns the
/// norm before. Throws usage_error unless max_norm is positive, and parx::error if the norm is not
/// finite and `found` asks for that.
template <typename Inner>
double clip_grad_norm(tensor_parallel<Inner>& wrapper, double max_norm,
                      optim::nonfinite found = optim::nonfinite::scale,
                      call_site site = call_site::current()) {
  require(max_norm > 0, "clip_grad_norm: the limit must be positive, not {}", max_norm);
  square_sum squares = optim::model_grad_squares(
      wrapper.module(), [&](const std::string& path) { return wrapper.is_counted(path); });
  all_reduce(*wrapper.gradient_group(), squares.words(), {}, site);
  const double norm = squares.norm();
  optim::require_usable_norm(norm, found);
  optim::scale_model_grad(wrapper.module(), norm, max_norm);
  return norm;
}

}  // namespace parx
