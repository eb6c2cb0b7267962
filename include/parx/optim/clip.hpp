// clip_grad_norm and clip_grad_value: limit gradients.
//
// Source: PyTorch's torch.nn.utils.clip_grad_norm_, norm 2, and clip_grad_value_. The norm is that
// of the whole model in every layout: where ranks have different parts of the gradient, as under
// fsdp, layers cut by a plan and pipelines, the parameters know over which ranks to add up, and all
// of these call it together. It is the root of an exact sum (square_sum), rounded once, so that it
// does not depend on the order of the parameters or on how they are divided among ranks. Rows of an
// embedding without a gradient are skipped.
//
// Gradients that a program of its own has spread over ranks: merge the sums by hand.
//   auto squares = optim::grad_squares(counted_here);   // a part that several have: on one of them
//   all_reduce(group, squares.words());
//   optim::scale_grad(targets, squares.norm(), max_norm);
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/log.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
#include <parx/optim/over_ranks.hpp>
#include <parx/optim/target.hpp>
#include <parx/types/square_sum.hpp>

namespace parx::inline PARX_ABI::optim {

/// The sum of the squares of all gradients.
template <typename T>
[[nodiscard]] square_sum grad_squares(const std::vector<target<T>>& targets) {
  square_sum squares;
  for (const target<T>& one : targets) {
    one.for_each_grad([&](std::span<const T> grad) { squares.add(grad); });
  }
  return squares;
}

namespace detail {

/// Throws usage_error for a part of a parameter, or a gradient that not all ranks share, where
/// nothing says which ranks have the rest.
template <typename T>
void require_places(const std::vector<target<T>>& targets, const char* function, call_site site) {
  for (const target<T>& one : targets) {
    const parameter<T>& each = one.owner();
    if (!each.defined() || !each.places().empty()) continue;
    require(each.reduction_group().empty(),
            "optim::{} at {}: the gradient of \"{}\" is summed over the ranks of \"{}\" alone, so "
            "other ranks may have other parameters, which nothing names here. Add up "
            "optim::grad_squares over the ranks: see optim/clip.hpp",
            function, site, each.name(), each.reduction_group());
    if (each.spec().is_whole()) continue;
    throw_usage(
        "optim::{} at {}: this rank has only {} of the {} elements of parameter \"{}\", and no "
        "wrapper of parx has cut it, so nothing says which ranks have the others. Add up "
        "optim::grad_squares over them: see optim/clip.hpp",
        function, site, each.size(), each.global_shape().size(), each.name());
  }
}

template <typename T>
[[nodiscard]] double norm_of(const std::vector<target<T>>& targets,
                             const std::vector<share_axes>& shares, const char* function,
                             call_site site) {
  require_places(targets, function, site);
  return grad_squares_of_all_ranks(targets, shares, site).norm();
}

}  // namespace detail

namespace detail {

/// Once, and in a job on rank 0 alone, where none of the targets has a gradient.
template <typename T>
[[gnu::cold]] void warn_of_nothing_to_clip(const std::vector<target<T>>& targets, call_site site) {
  static std::atomic<bool> is_told{false};
  for (const target<T>& one : targets) {
    if (one.has_grad()) return;
  }
  if (targets.empty() || is_told.exchange(true)) return;
  log0(log_level::warn,
       "clip_grad_norm at {}: no parameter has a gradient, so nothing is clipped: call it between "
       "backward and optimizer.step(), which uses the gradients up",
       site);
}

}  // namespace detail

/// The Euclidean norm of all gradients of the model as one vector, the same on all ranks; 0 without
/// any. Collective over the ranks that have different parts of the gradients; local under a ddp.
/// Throws usage_error where parameters were cut by hand.
template <typename T>
[[nodiscard]] double grad_norm(const std::vector<target<T>>& targets,
                               call_site site = call_site::current()) {
  return detail::norm_of(targets, {}, "grad_norm", site);
}
template <typename T>
[[nodiscard]] double grad_norm(const target_list<T>& targets,
                               call_site site = call_site::current()) {
  return detail::norm_of(targets, targets.axes, "grad_norm", site);
}

/// What to do where the norm is infinite or NaN.
enum class nonfinite {
  scale,  ///< go on: gradients become zero or NaN, which the returned norm shows
  error,  ///< throw parx::error with errc::bad_data before anything is changed
};

/// Throws parx::error with errc::bad_data where the norm is not finite and `found` says so.
inline void require_usable_norm(double norm, nonfinite found) {
  if (found == nonfinite::scale || std::isfinite(norm)) return;
  throw_error(errc::bad_data,
              "clip_grad_norm: the norm of the gradients is {}, so a parameter's gradient is "
              "infinite or NaN. Lower the learning rate, or look for the layer that makes it",
              norm);
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) where that is below 1, for a caller that
/// has computed the norm.
template <typename T>
void scale_grad(const std::vector<target<T>>& targets, double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return;
  for (const target<T>& one : targets) {
    one.for_each_grad([&](std::span<T> grad) {
      parx::for_each_element(grad.size(),
                             [=](std::size_t i) { grad[i] *= static_cast<T>(factor); });
    });
  }
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) where that is below 1. Returns the norm
/// before. Collective as grad_norm. Throws usage_error unless max_norm is positive, and where it
/// has clipped one of these gradients already (an infinite limit, which only measures, aside).
template <typename T>
double clip_grad_norm(const target_list<T>& targets, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  require(max_norm > 0, "clip_grad_norm at {}: the limit must be positive, not {}", site, max_norm);
  for (const target<T>& one : targets) {
    if (!one.owner().defined()) continue;
    const call_site before = one.owner().clipped_at();
    require(before.line == 0,
            "clip_grad_norm at {}: the gradient of \"{}\" was clipped at {} already, in the same "
            "step: clip once, between backward and optimizer.step(); grad_norm() only measures",
            site, one.name(), before);
  }
  const double norm = detail::norm_of(targets, targets.axes, "clip_grad_norm", site);
  require_usable_norm(norm, found);
  if (norm == 0) detail::warn_of_nothing_to_clip(targets, site);
  scale_grad(targets, norm, max_norm);
  for (const target<T>& one : targets) {
    if (one.owner().defined() && one.has_grad() && std::isfinite(max_norm))
      one.owner().note_clipped(site);
  }
  return norm;
}
template <typename T>
double clip_grad_norm(const std::vector<target<T>>& targets, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  return clip_grad_norm(target_list<T>{targets, {}}, max_norm, found, site);
}
template <typename T>
double clip_grad_norm(const std::vector<parameter<T>>& parameters, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  return clip_grad_norm(targets_of(parameters), max_norm, found, site);
}
template <typename T>
double clip_grad_norm(const parameter_list<T>& parameters, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  return clip_grad_norm(target_list<T>{targets_of(parameters), {parameters.axes}}, max_norm, found,
                        site);
}

/// For other arguments: a compile-time error that says what to do.
template <typename Other>
  requires requires(Other& model) { model.parameters(); }
double clip_grad_norm(Other&, double, nonfinite = nonfinite::scale) {
  static_assert(std::is_void_v<Other>,
                "clip_grad_norm takes the parameters, not the model: "
                "optim::clip_grad_norm(model.parameters(), 1.0)");
  return 0;
}

/// Moves every element of the gradients into [-limit, limit]; a NaN stays one. Throws usage_error
/// unless the limit is positive.
template <typename T>
void clip_grad_value(const std::vector<target<T>>& targets, double limit) {
  require(limit > 0, "clip_grad_value: the limit must be positive, not {}", limit);
  for (const target<T>& one : targets) {
    one.for_each_grad([&](std::span<T> grad) {
      const T most = static_cast<T>(limit);
      for (T& value : grad) value = std::clamp(value, -most, most);
    });
  }
}
template <typename T>
void clip_grad_value(const std::vector<parameter<T>>& parameters, double limit) {
  clip_grad_value(targets_of(parameters), limit);
}

}  // namespace parx::optim
