// loss_scale: the factor of a loss whose backward runs inside of a call.
//
// A loss scale (amp::grad_scaler) multiplies a loss before backward(). Of a model in stages
// forward_backward() makes the losses and runs their backward itself: it takes the scale from the
// innermost scope of this thread.
#pragma once

#include <utility>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops/arithmetic.hpp>

namespace parx::inline PARX_ABI::detail {

class loss_scale_scope {
 public:
  explicit loss_scale_scope(double factor) noexcept
      : factor_(factor), outer_(std::exchange(innermost(), this)) {}
  ~loss_scale_scope() { innermost() = outer_; }
  loss_scale_scope(const loss_scale_scope&) = delete;
  loss_scale_scope& operator=(const loss_scale_scope&) = delete;

  /// Whether take() was called in this scope: losses, if there were any, have the factor.
  [[nodiscard]] bool is_applied() const noexcept { return is_applied_; }

  /// For the caller to apply to its losses; 1 outside of all scopes.
  [[nodiscard]] static double take() noexcept {
    if (innermost() == nullptr) return 1;
    innermost()->is_applied_ = true;
    return innermost()->factor_;
  }

 private:
  [[nodiscard]] static loss_scale_scope*& innermost() noexcept {
    thread_local loss_scale_scope* scope = nullptr;
    return scope;
  }

  const double factor_;
  bool is_applied_ = false;
  loss_scale_scope* const outer_;
};

template <typename T>
[[nodiscard]] weighted_loss<T> scaled(weighted_loss<T> loss, double factor) {
  if (factor != 1) loss.sum = loss.sum * static_cast<T>(factor);
  return loss;
}

}  // namespace parx::detail
