// reduction_order: in which order the ranks' contributions to a reduction are combined.
//
// Floating sums round, so their bits depend on order and grouping. Of `serial` they depend on the
// contributions and the ranks alone: not on the algorithm, the transport, the hosts, or where a
// vector is cut, so that an all_reduce has the bits of a reduce_scatter over any blocks. Each
// single operation rounds to the type of the elements, also of 16-bit floats, where `serial` gives
//
//   float16 sum = x[0];
//   for (int r = 1; r < world; ++r) sum = float16(float(sum) + float(x[r]));
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Each is met by the ones after it.
enum class reduction_order : std::uint8_t {
  any,     ///< whatever is fastest; the operation commutes
  ranks,   ///< x0 op x1 op x2 ..., grouped in any way
  serial,  ///< ((x0 op x1) op x2) op ...
};

}  // namespace parx
