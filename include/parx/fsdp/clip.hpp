// clip_grad_norm for an fsdp: the exact norm of the whole gradient, of which each rank has a part.
// The result is the same on all ranks, and the same as ddp's.
#pragma once

#include <string>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/fsdp/fsdp.hpp>
#include <parx/optim/clip.hpp>

namespace parx::inline PARX_ABI {

/// Collective. The norm of the gradients of `targets`: the same parameters on all ranks.
template <typename Module, typename T>
[[nodiscard]] double grad_norm(fsdp<Module>& wrapper, const std::vector<optim::target<T>>& targets,
                               call_site site = call_site::current()) {
  square_sum squares = optim::grad_squares(targets);
  all_reduce(wrapper.shard_group(), squares.words(), {}, site);
  return squares.norm();
}

/// Collective. Multiplies all gradients by max_norm / (norm + 1e-6) if that is below 1; returns the
/// norm before. Throws usage_error unless max_norm is positive, and parx::error if the norm is not
/// finite and `found` asks for that.
template <typename Module>
double clip_grad_norm(fsdp<Module>& wrapper, double max_norm,
                      optim::nonfinite found = optim::nonfinite::scale,
                      call_site site = call_site::current()) {
  require(max_norm > 0, "clip_grad_norm: the limit must be positive, not {}", max_norm);
  square_sum squares =
      optim::model_grad_squares(wrapper.module(), [](const std::string&) { return true; });
  all_reduce(wrapper.shard_group(), squares.words(), {}, site);
  const double norm = squares.norm();
  optim::require_usable_norm(norm, found);
  optim::scale_model_grad(wrapper.module(), norm, max_norm);
  return norm;
}

}  // namespace parx
