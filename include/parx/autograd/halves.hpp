// Backward in two halves: for pipeline schedules that fill their gaps with gradients of weights.
//
//   const parx::border<float> x(received);
//   const auto loss = criterion(stage(x), labels);
//   auto rest = loss.backward_inputs();       // I: what leads to the borders, and nothing else
//   send(x.gradient());                       // the stage before waits for this
//   ...
//   rest.weights();                           // W: the gradients of the parameters
//
// Both halves together make the gradients of one whole backward, bit by bit. Observers (ddp) hear
// of the second half as of a whole backward, and may be told not to synchronise it (no_sync); their
// gradients are sums in any case. A stage without a border has an empty first half.
// Between the halves lives what the second one needs: inputs of products and the gradients of their
// results. The rest goes as the first half passes. Norms, attention and the collectives of batch
// norm run once, in the first half (function.hpp: undivided), as do parts that are computed again
// (checkpoint.hpp).
// Qi, Wan, Huang, Lin: Zero Bubble Pipeline Parallelism (arXiv 2401.10241).
#pragma once

#include <utility>

#include <parx/autograd/detail/engine.hpp>

namespace parx::inline PARX_ABI {

/// The second half of a backward whose first half has run. Any number of them may wait, and run in
/// any order; gradients add up in that order. Without weights() the gradients of the parameters are
/// discarded with this object, and no observer hears of the backward.
class [[nodiscard]] backward_rest {
 public:
  /// For variable::backward_inputs.
  explicit backward_rest(detail::half_run_pass pass) noexcept : pass_(std::move(pass)) {}

  /// Adds to the gradients of all leaves but the borders. Blocks while an observer's end_backward
  /// does. On the thread of the first half. Throws usage_error when called twice, and whatever an
  /// operation or an observer throws, which leaves gradients that are incomplete.
  void weights() {
    require(pass_.is_left(), "weights() has run already: a backward has one second half");
    pass_.run_weights();
  }

 private:
  detail::half_run_pass pass_;
};

}  // namespace parx
