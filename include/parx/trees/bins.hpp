// bins: the rows of this rank as the numbers of bins, one or two bytes a value.
//
// Both layouts are kept. Histograms read rows: the codes of a row lie together, padded so that a
// row of up to 32 bytes is in one cache line, and one fetch of a scattered row serves all its
// columns (reading columns through a list of rows costs a fetch a value, 5 times the time). The
// partition of a node's rows reads one column, so there is a copy by columns (7 times faster than
// through rows). 28 columns cost 60 bytes a row.
//
// A sparse table has its entries alone: 5 or 6 bytes each, by row. The partition looks a row's code
// up by bisection of the row's columns, and what is not there is missing.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/cuts.hpp>
#include <parx/trees/huge_pages.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// bin(x) by bisection without branches: the cuts are padded to a power of two less one by NaN,
/// which no x reaches, so each step adds its half or 0.
class bin_finder {
 public:
  explicit bin_finder(const column_cuts& column)
      : categorical_(column.categories > 0),
        missing_(static_cast<std::uint32_t>(column.value_bins())) {
    while (half_ * 2 <= column.cuts.size()) half_ *= 2;
    cuts_ = column.cuts;
    cuts_.resize(half_ * 2 - 1, std::numeric_limits<float>::quiet_NaN());
  }
  [[nodiscard]] std::uint32_t operator()(float x) const noexcept {
    if (x != x) return missing_;
    if (categorical_) return static_cast<std::uint32_t>(x);
    std::size_t bin = 0;
    for (std::size_t step = half_; step > 0; step /= 2) {
      bin += cuts_[bin + step - 1] <= x ? step : 0;
    }
    return static_cast<std::uint32_t>(bin);
  }

 private:
  bool categorical_;
  std::uint32_t missing_;
  std::size_t half_ = 1;
  std::vector<float> cuts_;
};

/// A power of two up to 32 bytes, then a multiple of 32.
[[nodiscard]] constexpr std::size_t padded_row(std::size_t bytes) noexcept {
  std::size_t padded = 1;
  while (padded < bytes && padded < 32) padded *= 2;
  return bytes <= padded ? padded : (bytes + 31) / 32 * 32;
}

}  // namespace detail

/// The codes in both layouts; Code is std::uint8_t or std::uint16_t.
template <typename Code>
struct bin_codes {
  row_vector<Code> by_row;     ///< row r's from r * stride on; of a sparse table: of the entries
  row_vector<Code> by_column;  ///< column c's from c * rows on; of a sparse table: none
};

class bins {
 public:
  /// Local. `cuts` are find_cuts() of all ranks' rows.
  bins(const table& rows, std::span<const column_cuts> cuts);

  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::size_t columns() const noexcept { return cell_begin_.size() - 1; }
  [[nodiscard]] bool sparse() const noexcept { return !entry_begin_.empty(); }
  /// Codes from one row to the next, of a dense table.
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  /// Of a sparse table: where each row's entries begin, rows + 1 of them, and their columns, which
  /// ascend in a row.
  [[nodiscard]] const std::size_t* entry_begin() const noexcept { return entry_begin_.data(); }
  [[nodiscard]] const std::uint32_t* entry_column() const noexcept { return entry_column_.data(); }
  /// A histogram has a cell for each code of each column: column c's begin here. One entry more
  /// than columns.
  [[nodiscard]] std::span<const std::size_t> cell_begin() const noexcept { return cell_begin_; }
  [[nodiscard]] std::size_t cells() const noexcept { return cell_begin_.back(); }
  /// Whether the last cell of a column is that of missing values.
  [[nodiscard]] bool has_missing(std::size_t column) const noexcept {
    return has_missing_[column] != 0;
  }

  /// visit(const bin_codes<Code>&) with the codes that there are.
  template <typename Visit>
  decltype(auto) with_codes(const Visit& visit) const {
    return wide_ ? visit(two_bytes_) : visit(one_byte_);
  }
  /// visit(code_of), where code_of(row) is the row's code of that column.
  template <typename Visit>
  void with_column(std::size_t column, const Visit& visit) const {
    with_codes([&](const auto& codes) {
      if (!sparse()) {
        return visit([code = codes.by_column.data() + column * rows_](std::size_t row) {
          return static_cast<std::size_t>(code[row]);
        });
      }
      const std::size_t missing = cell_begin_[column + 1] - cell_begin_[column] - 1;
      visit([this, &codes, column, missing](std::size_t row) {
        const auto* const end = entry_column_.data() + entry_begin_[row + 1];
        const auto* const found =
            std::lower_bound(entry_column_.data() + entry_begin_[row], end, column);
        const bool is_there = found != end && *found == column;
        return is_there ? std::size_t{codes.by_row[static_cast<std::size_t>(found -
                                                                            entry_column_.data())]}
                        : missing;
      });
    });
  }

 private:
  template <typename Code>
  void fill(const table& rows, std::span<const detail::bin_finder> finders, bin_codes<Code>& codes);

  std::size_t rows_ = 0;
  std::size_t stride_ = 0;
  std::vector<std::size_t> cell_begin_{0};
  std::vector<std::uint8_t> has_missing_;
  row_vector<std::size_t> entry_begin_;
  row_vector<std::uint32_t> entry_column_;
  bool wide_ = false;
  bin_codes<std::uint8_t> one_byte_;
  bin_codes<std::uint16_t> two_bytes_;
};

inline bins::bins(const table& rows, std::span<const column_cuts> cuts)
    : rows_(static_cast<std::size_t>(rows.rows)) {
  int most = 0;
  std::vector<detail::bin_finder> finders;
  for (const column_cuts& column : cuts) {
    most = std::max(most, column.codes());
    cell_begin_.push_back(cell_begin_.back() + static_cast<std::size_t>(column.codes()));
    has_missing_.push_back(column.has_missing ? 1 : 0);
    finders.emplace_back(column);
  }
  wide_ = most > 256;
  const std::size_t width = wide_ ? 2 : 1;
  stride_ = detail::padded_row(cuts.size() * width) / width;
  wide_ ? fill(rows, finders, two_bytes_) : fill(rows, finders, one_byte_);
}

template <typename Code>
void bins::fill(const table& rows, std::span<const detail::bin_finder> finders,
                bin_codes<Code>& codes) {
  const std::size_t columns = finders.size();
  if (rows.sparse()) {
    entry_column_.reserve(rows.column.size());
    codes.by_row.reserve(rows.column.size());
    entry_begin_.push_back(0);
    for (std::size_t row = 0; row < rows_; ++row) {
      const auto end = static_cast<std::size_t>(rows.row_begin[row + 1]);
      for (auto i = static_cast<std::size_t>(rows.row_begin[row]); i < end; ++i) {
        const auto column = static_cast<std::size_t>(rows.column[i]);
        if (std::isnan(rows.value[i])) continue;
        entry_column_.push_back(static_cast<std::uint32_t>(column));
        codes.by_row.push_back(static_cast<Code>(finders[column](rows.value[i])));
      }
      entry_begin_.push_back(entry_column_.size());
    }
    return;
  }
  codes.by_row.resize(rows_ * stride_);
  codes.by_column.resize(rows_ * columns);
  parallel_for(rows_, 4096, [&](std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row) {
      Code* const into = codes.by_row.data() + row * stride_;
      const float* const values = rows.values.data() + row * columns;
      for (std::size_t c = 0; c < columns; ++c) into[c] = static_cast<Code>(finders[c](values[c]));
    }
    for (std::size_t c = 0; c < columns; ++c) {
      Code* const into = codes.by_column.data() + c * rows_;
      const Code* const from = codes.by_row.data() + c;
      for (std::size_t row = first; row < last; ++row) into[row] = from[row * stride_];
    }
  });
}

}  // namespace parx::trees
