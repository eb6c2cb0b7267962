// reduction_finish: when a ddp waits for the sums of gradients over the ranks.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class reduction_finish {
  with_backward,  ///< at the end of the backward pass that started them
  when_asked,     ///< in finish(): other work can run in between
};

}  // namespace parx
