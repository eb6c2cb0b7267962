// reduction_finish: who waits for the sums of gradients over the ranks.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class reduction_finish {
  with_backward,  ///< the backward that began them, at its end
  when_asked,     ///< finish(): other work runs meanwhile
};

}  // namespace parx
