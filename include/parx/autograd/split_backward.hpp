// Backward in two halves, for pipeline schedules that fill idle time with gradients of weights.
//
//   const parx::border<float> x(received);
//   const auto loss = criterion(stage(x), labels);
//   auto rest = loss.backward_inputs();       // I: only the gradients that lead to the borders
//   send(x.gradient());                       // the previous stage waits for this
//   ...
//   rest.weights();                           // W: the gradients of the parameters
//
// Both halves together compute the gradients of one whole backward, bit by bit. To observers (ddp)
// the second half is a whole backward, which no_sync may keep from being synchronised; their
// gradients are sums in any case. A stage without a border has an empty first half.
// Between the halves only what the second one needs is kept: the operands of products and the
// gradients of their results. Everything else is freed during the first half. Norms, attention and
// the collectives of batch norm run once, in the first half (function.hpp: single_call), as do
// recomputed parts (checkpoint.hpp).
// Qi, Wan, Huang, Lin: Zero Bubble Pipeline Parallelism (arXiv 2401.10241).
#pragma once

#include <utility>

#include <parx/autograd/detail/engine.hpp>

namespace parx::inline PARX_ABI {

/// The second half of a backward whose first half has run. Any number of them may be pending, and
/// run in any order; gradients add up in that order. Without weights() the gradients of the
/// parameters are discarded with this object, and no observer is notified.
class [[nodiscard]] backward_rest {
 public:
  /// For variable::backward_inputs.
  explicit backward_rest(detail::half_run_pass pass) noexcept : pass_(std::move(pass)) {}

  /// Adds to the gradients of all leaves but the borders. Blocks while an observer's end_backward
  /// does. To be called on the thread of the first half. Throws usage_error when called twice, and
  /// whatever an operation or an observer throws; gradients are incomplete then.
  void weights() {
    require(pass_.is_left(), "weights() has run already: a backward has one second half");
    pass_.run_weights();
  }

 private:
  detail::half_run_pass pass_;
};

}  // namespace parx
