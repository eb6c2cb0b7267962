// row_cut: a table cut over ranks into consecutive blocks of equally many rows. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

struct row_cut {
  std::size_t rows = 0;
  std::size_t ranks = 1;

  [[nodiscard]] std::size_t begin(std::size_t rank) const noexcept {
    return std::min(rank * ((rows + ranks - 1) / ranks), rows);
  }
  [[nodiscard]] std::size_t count(std::size_t rank) const noexcept {
    return begin(rank + 1) - begin(rank);
  }
  /// How many of `ascending` rows each rank has.
  void count_owned(std::span<const std::size_t> ascending, std::span<std::uint32_t> counts) const {
    auto next = ascending.begin();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto end = std::lower_bound(next, ascending.end(), begin(rank + 1));
      counts[rank] = static_cast<std::uint32_t>(end - next);
      next = end;
    }
  }
};

}  // namespace parx::detail
