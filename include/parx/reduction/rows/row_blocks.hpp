// row_blocks: rows of a table's gradient on their way between ranks, and their sums.
//
// A block is the values of some rows, one row after the other, then their numbers as uint32. Rows
// of several blocks are added up in the order of the blocks, which is that of the ranks: so a sum
// has the same bits wherever it is formed. Independent of groups.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <parx/types/dtype.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

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

/// Writes the block of `rows` of a gradient to `to`, and returns its end.
inline std::byte* pack_rows(std::byte* to, const std::byte* gradient,
                            std::span<const std::size_t> rows, std::size_t row_bytes) {
  for (const std::size_t row : rows) {
    std::memcpy(to, gradient + row * row_bytes, row_bytes);
    to += row_bytes;
  }
  for (const std::size_t row : rows) {
    const auto number = static_cast<std::uint32_t>(row);
    std::memcpy(to, &number, sizeof number);
    to += sizeof number;
  }
  return to;
}

class row_adder {
 public:
  /// For sums of rows below `rows`, of `width` elements each.
  row_adder(std::size_t rows, std::size_t width, dtype type)
      : width_(width), row_bytes_(width * size_of(type)),
        add_(reduce_kernel(type, reduce_op::sum)), scale_(scale_kernel(type)), found_(rows),
        has_sum_(rows, 0) {}

  /// Block i begins where the bytes[i - 1] bytes of the one before end, and has counts[i] rows.
  /// `index(number)` is the row that a number means here. place(rows) is called once with all rows,
  /// ascending, and returns the memory in which row r has its place at r rows from the start: it
  /// receives the sums times `factor`.
  template <typename Counts, typename Index, typename Place>
  void add_up(const std::byte* blocks, const Counts& counts, std::span<const std::size_t> bytes,
              double factor, Index index, Place place) {
    const auto for_each_row = [&](auto use) {
      const std::byte* block = blocks;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        const std::byte* const numbers = block + counts[i] * row_bytes_;
        for (std::size_t k = 0; k < counts[i]; ++k) {
          std::uint32_t number = 0;
          std::memcpy(&number, numbers + k * sizeof number, sizeof number);
          use(index(i, number), block + k * row_bytes_);
        }
        block += bytes[i];
      }
    };
    for_each_row([&](std::size_t row, const std::byte*) { found_.insert(row); });
    found_.take(rows_);
    std::byte* const sums = place(std::span<const std::size_t>(rows_));
    for_each_row([&](std::size_t row, const std::byte* values) {
      std::byte* const sum = sums + row * row_bytes_;
      if (std::exchange(has_sum_[row], static_cast<unsigned char>(1)) != 0) {
        add_(sum, sum, values, width_);
      } else {
        std::memcpy(sum, values, row_bytes_);
      }
    });
    for (const std::size_t row : rows_) {
      scale_(sums + row * row_bytes_, width_, factor);
      has_sum_[row] = 0;
    }
  }

 private:
  const std::size_t width_, row_bytes_;
  const reduce_function add_;
  const scale_function scale_;
  row_set found_;
  std::vector<unsigned char> has_sum_;  ///< by row; all zero between two calls
  std::vector<std::size_t> rows_;
};

}  // namespace parx
