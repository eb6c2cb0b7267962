// clip_grad_norm and clip_grad_value: limit gradients.
//
// Source: PyTorch's torch.nn.utils.clip_grad_norm_, norm 2, and clip_grad_value_. All is local. The
// norm is the root of an exact sum (square_sum), rounded once, so that it does not depend on the
// order of the parameters or on how they are divided among ranks. Rows of an embedding without a
// gradient are skipped.
//
// Under data parallelism every rank has the same gradients after backward and gets the same norm.
// Where ranks hold different parts of a model, norms would differ between ranks: grad_norm and
// clip_grad_norm refuse them. An fsdp, a tensor_parallel, a pipeline and what parallelize() returns
// have a clip_grad_norm of their own. By hand the sums are merged; a part that several ranks hold
// is counted by one of them:
//   auto squares = optim::grad_squares(counted_here);
//   all_reduce(group, squares.words());
//   optim::scale_grad(targets, squares.norm(), max_norm);
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
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

/// Throws usage_error where this rank has only a part of the model, so that the norm of its
/// gradients is not the model's. `max_norm` is what clip_grad_norm was given.
template <typename T>
void require_whole_model(const std::vector<target<T>>& targets, std::optional<double> max_norm,
                         call_site site) {
  const auto refuse = [&](const std::string& why, const std::string& what_to_do) {
    throw_usage("optim::{} at {}: {}, so each rank would {} the norm of its own part. {}",
                max_norm ? "clip_grad_norm" : "grad_norm", site, why, max_norm ? "clip by" : "get",
                what_to_do);
  };
  for (const target<T>& one : targets) {
    const parameter<T>& each = one.owner();
    if (!each.defined()) continue;
    if (each.is_of_stage()) {
      refuse(formatted("this rank has only the parameters of its pipeline stage, such as \"{}\"",
                       each.name()),
             max_norm
                 ? formatted("Write parx::clip_grad_norm(pipe, opt.targets(), {:#})", *max_norm)
                 : "Write parx::grad_norm(pipe, opt.targets())");
    }
    if (!each.reduction_group().empty()) {
      refuse(formatted("the gradient of \"{}\" is summed over the ranks of \"{}\" alone",
                       each.name(), each.reduction_group()),
             "Add up optim::grad_squares over the ranks: see optim/clip.hpp");
    }
    if (!each.spec().is_whole()) {
      refuse(formatted("this rank has only {} of the {} elements of parameter \"{}\"", each.size(),
                       each.global_shape().size(), each.name()),
             max_norm
                 ? formatted("If an fsdp has cut it, write parx::clip_grad_norm(fsdp, {0:#}); if a "
                             "plan has, tp.clip_grad_norm(ddp.parameters(), {0:#}) with what "
                             "parallelize() returned as tp; if both have, parx::clip_grad_norm("
                             "parallel, {0:#}) with a parx::tensor_parallel parallel{{tp, fsdp, "
                             "mesh.all()}}",
                             *max_norm)
                 : "Write parx::grad_norm(fsdp, opt.targets()); for layers cut by a plan, also "
                   "in a trainer, use a parx::tensor_parallel parallel{tp, ddp, mesh.all()}: "
                   "parx::grad_norm(parallel, opt.targets())");
    }
  }
}

}  // namespace detail

/// The Euclidean norm of all gradients as one vector; 0 without any. Throws usage_error where this
/// rank has only a part of the model.
template <typename T>
[[nodiscard]] double grad_norm(const std::vector<target<T>>& targets,
                               call_site site = call_site::current()) {
  detail::require_whole_model(targets, {}, site);
  return grad_squares(targets).norm();
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
      parx::detail::for_each_element(
          grad.size(), [=](std::size_t i) { grad[i] *= static_cast<T>(factor); });
    });
  }
}

/// The sum of the squares of a model's gradients, of any types, whose paths `is_counted` accepts.
template <typename Model, typename IsCounted>
[[nodiscard]] square_sum model_grad_squares(Model& model, IsCounted is_counted) {
  square_sum squares;
  model.for_each_parameter([&]<typename T>(const std::string& path, parameter<T>& each) {
    if (is_counted(path)) squares += grad_squares(std::vector<target<T>>{each});
  });
  return squares;
}
/// scale_grad for all gradients of a model, of any types.
template <typename Model>
void scale_model_grad(Model& model, double norm, double max_norm) {
  model.for_each_parameter([&]<typename T>(const std::string&, parameter<T>& each) {
    scale_grad(std::vector<target<T>>{each}, norm, max_norm);
  });
}

/// Multiplies all gradients by max_norm / (norm + 1e-6) where that is below 1. Returns the norm
/// before. Throws usage_error unless max_norm is positive, and where this rank has only a part of
/// the model: each rank would clip by another norm.
template <typename T>
double clip_grad_norm(const std::vector<target<T>>& targets, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  require(max_norm > 0, "clip_grad_norm at {}: the limit must be positive, not {}", site, max_norm);
  detail::require_whole_model(targets, max_norm, site);
  const double norm = grad_squares(targets).norm();
  require_usable_norm(norm, found);
  scale_grad(targets, norm, max_norm);
  return norm;
}
template <typename T>
double clip_grad_norm(const std::vector<parameter<T>>& parameters, double max_norm,
                      nonfinite found = nonfinite::scale, call_site site = call_site::current()) {
  return clip_grad_norm(targets_of(parameters), max_norm, found, site);
}

/// For other arguments: a compile-time error that says what to do.
template <typename Other>
  requires requires(Other& model) { model.parameters(); }
double clip_grad_norm(Other&, double, nonfinite = nonfinite::scale) {
  static_assert(std::is_void_v<Other>,
                "clip_grad_norm takes the parameters, not the model: "
                "optim::clip_grad_norm(model.parameters(), 1.0); only an fsdp and a "
                "tensor_parallel are given themselves: parx::clip_grad_norm(fsdp, 1.0)");
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
