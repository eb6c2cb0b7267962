// The options of variable::backward and its like.
#pragma once

#include <parx/autograd/observer.hpp>

namespace parx::inline PARX_ABI {

enum class graph_after {
  freed,     ///< each operation's saved tensors are dropped once backward has run it
  retained,  ///< backward can run again
};

struct backward_options {
  double seed = 1;   ///< factor on the gradient
  double count = 1;  ///< the weight of the loss: see weighted_loss
  /// The gradient that leaves without an observer get. Means of several backwards add up to a mean
  /// of means: for batches of different weights, take sums and divide by the sum of the counts.
  gradient_of of = gradient_of::mean;
  graph_after graph = graph_after::freed;
};

}  // namespace parx
