// backward_observer: how a wrapper (DDP, FSDP, a pipeline's border, a gradient logger) follows a
// backward pass.
//
// A leaf is attached with an index of the observer's choosing. Every backward that reaches at least
// one attached leaf calls, on the thread that runs backward and in this order:
//   wanted, then begin_backward, once, before any gradient is written, then unobserved for each
//     named leaf without an observer;
//   leaf_ready once for each reached leaf, when its gradient is final for this backward, in the
//     reverse order of first use in the forward pass (leaves used twice wait for their last
//     contribution);
//   end_backward once, after the last node ran; or abandon_backward, when an exception leaves
//     backward.
// Several observers may follow one pass. They begin in the order in which the oldest of their
// leaves were made, which is the same on all ranks that build the same model, and end in the
// opposite order.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// A loss is a sum and a count (see weighted_loss): which of the two is differentiated.
enum class gradient_of {
  mean,  ///< sum / count
  sum,   ///< for callers that add up gradients, over ranks or micro-batches, and divide once
};

/// Where the count of a pass is from. In one step ranks of both kinds are refused: those that count
/// would weigh as many times more as they have samples.
enum class sample_count {
  given,   ///< the caller has said it, or the loss has it
  assumed  ///< nobody has counted: each rank weighs 1
};

/// Passed to observers when a pass starts.
struct backward_start {
  double count = 1;  ///< the weight of the loss (see weighted_loss; 1 for a plain scalar)
  /// The indices of the attached leaves that this backward reaches, ascending; every attached leaf
  /// that is missing gets no gradient and no leaf_ready. Valid during the call.
  std::span<const std::size_t> reached = {};
  /// What this pass differentiates: the sum if any observer wanted that.
  gradient_of of = gradient_of::sum;
  sample_count counted = sample_count::given;
};

class backward_observer {
 public:
  virtual ~backward_observer() = default;

  /// What the pass that is about to begin should differentiate. `mean` means that the observer
  /// accepts both and reads backward_start::of. Leaves without an observer get what
  /// backward_options::of says in any case.
  [[nodiscard]] virtual gradient_of wanted() const = 0;
  virtual void begin_backward(const backward_start& start) = 0;
  /// Called after begin_backward for each named parameter that this backward reaches and that no
  /// observer is attached to.
  virtual void unobserved(std::string_view /*name*/, std::span<const std::size_t> /*shape*/) {}
  /// The gradient of this leaf is complete, in the memory given to bind_grad. The operation that
  /// computed it may still have other gradients to compute.
  virtual void leaf_ready(std::size_t leaf_index) = 0;
  /// May block until the gradients are what the optimizer should see. Not called on failure.
  virtual void end_backward() = 0;
  /// Called instead of end_backward when backward fails for any reason. Gradients are incomplete.
  virtual void abandon_backward() noexcept = 0;
  /// Between passes: whether the gradients so far are only a part of the step's, to which the next
  /// pass adds.
  [[nodiscard]] virtual bool adds_passes_up() const { return false; }
  /// An optimizer is about to use the gradient of an attached leaf. May throw usage_error.
  virtual void before_step() const {}
  /// An optimizer steps over an attached leaf that got no gradient. May throw usage_error.
  virtual void step_without_gradient() const {}
  /// An optimizer has changed the value of an attached leaf.
  virtual void value_changed(std::size_t /*leaf_index*/) const {}
  /// The value of an attached leaf is about to be written by something other than a step: swapped
  /// with an average, read from a file. Called on all ranks.
  virtual void before_write() const {}
};

}  // namespace parx
