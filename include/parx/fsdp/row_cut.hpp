// row_cut: a table cut over ranks into consecutive blocks of equally many rows, and sets of rows to
// send between them. Pure.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

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

/// A set of row numbers below a bound, read in ascending order. A bitmap: for the batches of a step
/// it is faster to fill and read than a list is to sort.
class row_set {
 public:
  explicit row_set(std::size_t bound) : words_((bound + bits - 1) / bits, 0) {}

  void insert(std::size_t row) noexcept { words_[row / bits] |= word{1} << (row % bits); }
  /// Moves the numbers to `rows`; the set is empty afterwards.
  void take(std::vector<std::size_t>& rows) {
    rows.clear();
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (word left = words_[i]; left != 0; left &= left - 1) {
        rows.push_back(i * bits + static_cast<std::size_t>(std::countr_zero(left)));
      }
      words_[i] = 0;
    }
  }

 private:
  using word = std::uint64_t;
  static constexpr std::size_t bits = std::numeric_limits<word>::digits;

  std::vector<word> words_;
};

}  // namespace parx::detail
