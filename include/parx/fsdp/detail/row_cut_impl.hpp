// Definitions of row_cut.hpp.
#pragma once

#include <bit>

#include <parx/fsdp/row_cut.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void row_cut::count_owned(std::span<const std::size_t> ascending,
                                      std::span<std::uint32_t> counts) const {
  auto next = ascending.begin();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto end = std::lower_bound(next, ascending.end(), begin(rank + 1));
    counts[rank] = static_cast<std::uint32_t>(end - next);
    next = end;
  }
}

PARX_INLINE void row_set::take(std::vector<std::size_t>& rows) {
  rows.clear();
  for (std::size_t i = 0; i < words_.size(); ++i) {
    for (word left = words_[i]; left != 0; left &= left - 1) {
      rows.push_back(i * bits + static_cast<std::size_t>(std::countr_zero(left)));
    }
    words_[i] = 0;
  }
}

}  // namespace parx::detail
