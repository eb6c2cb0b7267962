// axis_strides: a contiguous tensor as (outer, extent, inner), around one axis.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/shape.hpp>

namespace parx::inline PARX_ABI::detail {

/// Element (o, k, i) of axis index k is at o * slab() + k * inner + i.
struct axis_strides {
  std::size_t outer = 1, extent = 1, inner = 1;

  /// Throws usage_error for an axis that does not exist.
  axis_strides(const shape& s, int axis) {
    const std::size_t at = resolve_axis(axis, s);
    extent = s[at];
    for (std::size_t i = 0; i < at; ++i) outer *= s[i];
    for (std::size_t i = at + 1; i < s.rank(); ++i) inner *= s[i];
  }
  [[nodiscard]] std::size_t slab() const noexcept { return extent * inner; }

  /// Calls body(o, begin, end) for all elements of all slabs: those whose i is in [begin, end), by
  /// the threads of the rank. All elements at one i of a slab are one thread's.
  template <typename Body>
  void for_each_slab(const Body& body) const {
    if (outer > 1 || inner == 1) {
      parallel_for(outer, rows_of_a_block(slab()), [&](std::size_t o, std::size_t last) {
        for (; o < last; ++o) body(o, std::size_t{0}, inner);
      });
    } else if (outer == 1) {
      parallel_for(inner, std::max<std::size_t>(rows_of_a_block(extent), 512),
                   [&](std::size_t begin, std::size_t end) { body(std::size_t{0}, begin, end); });
    }
  }
};

}  // namespace parx::detail
