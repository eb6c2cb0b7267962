// reduction_order: in which order the ranks' contributions to a reduction are combined.
//
// Floating sums round, so their bits depend on order and grouping. With `serial` they depend only
// on the contributions and their ranks: not on the algorithm, the transport, the hosts, or where a
// vector is cut. So an all_reduce has the bits of a reduce_scatter over any blocks. Each single
// operation rounds to the element type, also for 16-bit floats, where `serial` gives
//
//   float16 sum = x[0];
//   for (int r = 1; r < world; ++r) sum = float16(float(sum) + float(x[r]));
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Each order is satisfied by the ones after it.
enum class reduction_order : std::uint8_t {
  any,     ///< any order, the fastest; the operation commutes
  ranks,   ///< x0 op x1 op x2 ..., grouped in any way
  serial,  ///< ((x0 op x1) op x2) op ...
};

}  // namespace parx
