// backward_observer: how a wrapper (DDP, FSDP, a gradient logger) follows a backward pass.
//
// A leaf is attached with an index of the observer's choosing. Every backward that reaches at least
// one attached leaf calls, on the thread that runs backward and in this order:
//   begin_backward once, before any gradient is written, then unobserved for what has no observer;
//   leaf_ready once for each reached leaf, when its gradient is final for this backward, in the
//   reverse
//     order of first use in the forward pass (leaves used twice wait for their last contribution);
//   end_backward once, after the last node ran; or abandon_backward, when an exception leaves
//   backward.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class backward_observer {
 public:
  virtual ~backward_observer() = default;

  /// `count` is the weight of the loss (see weighted_loss; 1 for a plain scalar). `reached` are the
  /// indices of the attached leaves that this backward reaches, ascending; every attached leaf that
  /// is missing gets no gradient and no leaf_ready. Returns the factor to start the gradients from:
  /// 1 / count for the gradient of the mean, 1 for that of the sum. Two observers must return the
  /// same. Leaves without an observer get the gradient of the mean in any case.
  virtual double begin_backward(double count, std::span<const std::size_t> reached) = 0;
  /// Called after begin_backward for each named parameter that this backward reaches and that no
  /// observer is attached to.
  virtual void unobserved(std::string_view /*name*/, std::span<const std::size_t> /*shape*/) {}
  /// The gradient of this leaf is complete, and in place where bind_grad put it. The operation that
  /// made it may have other gradients still to compute.
  virtual void leaf_ready(std::size_t leaf_index) = 0;
  /// May block until the gradients are what the optimizer should see. Not called on failure.
  virtual void end_backward() = 0;
  /// Called instead of end_backward when backward fails, whoever failed. Gradients are incomplete.
  virtual void abandon_backward() noexcept = 0;
  /// An optimizer is about to use the gradient of an attached leaf. May throw usage_error.
  virtual void before_step() const {}

 protected:
  backward_observer() = default;
  backward_observer(const backward_observer&) = default;
  backward_observer& operator=(const backward_observer&) = default;
};

}  // namespace parx
