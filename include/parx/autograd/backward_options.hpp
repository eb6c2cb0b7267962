// What a backward may be asked for.
#pragma once

#include <parx/autograd/observer.hpp>

namespace parx::inline PARX_ABI {

enum class graph_after {
  freed,     ///< what the operations saved is dropped as backward passes
  retained,  ///< backward can run again
};

struct backward_options {
  double seed = 1;   ///< factor on the gradient
  double count = 1;  ///< the weight of the loss: see weighted_loss
  /// What leaves without an observer get. The mean of each backward adds up to a mean of means: to
  /// add up batches of different weights, take sums and divide by the sum of the counts.
  gradient_of of = gradient_of::mean;
  graph_after graph = graph_after::freed;
};

}  // namespace parx
