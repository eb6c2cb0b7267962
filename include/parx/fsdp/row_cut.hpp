// row_cut: a table cut over ranks into consecutive blocks of equally many rows, and sets of rows to
// send between them. Pure.
#pragma once

#include <algorithm>
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
  void count_owned(std::span<const std::size_t> ascending, std::span<std::uint32_t> counts) const;
};

/// A set of row numbers below a bound, read in ascending order. A bitmap: for the batches of a step
/// it is faster to fill and read than a list is to sort.
class row_set {
 public:
  explicit row_set(std::size_t bound) : words_((bound + bits - 1) / bits, 0) {}

  void insert(std::size_t row) noexcept { words_[row / bits] |= word{1} << (row % bits); }
  /// Moves the numbers to `rows`; the set is empty afterwards.
  void take(std::vector<std::size_t>& rows);

 private:
  using word = std::uint64_t;
  static constexpr std::size_t bits = std::numeric_limits<word>::digits;

  std::vector<word> words_;
};

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/row_cut_impl.hpp>
#endif
