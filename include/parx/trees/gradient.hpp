// gradient: what a tree is grown from.
#pragma once

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::trees {

/// By the margin: the first derivative of a row's loss, and the second, which is not below 0.
struct gradient {
  float g;
  float h;
};

}  // namespace parx::trees
