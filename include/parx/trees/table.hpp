// table: labelled rows, as trees are trained on and asked about.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::trees {

/// numeric: split at a threshold. categorical: the values are codes 0, 1, 2 ..., the same codes on
/// all ranks, and a split divides the set of them.
enum class column_kind { numeric, categorical };

/// Rows that were read from one file.
struct row_origin {
  std::string path;
  std::int64_t begin = 0;      ///< the first of them in the table
  std::int64_t first_row = 0;  ///< and in the file, from 0
};

/// Some rows of the data: those of one rank, or all of them. It owns what it holds. Dense rows are
/// in `values`; sparse ones in row_begin, column and value, where values is empty.
struct table {
  std::int64_t rows = 0;
  std::int64_t columns = 0;               ///< of the whole data
  std::vector<float> values{};            ///< rows x columns; NaN is missing
  std::vector<std::int64_t> row_begin{};  ///< rows + 1: where each row's entries begin
  std::vector<std::int32_t> column{};     ///< of each entry, ascending in a row
  std::vector<float> value{};             ///< of each entry; what has none is missing
  std::vector<float> label{};             ///< a row
  std::vector<float> weight{};            ///< a row; empty: 1
  std::vector<std::int64_t> group{};      ///< where each query begins, and rows; empty: no queries
  std::vector<std::string> names{};       ///< a column; empty: none
  std::vector<column_kind> kinds{};       ///< a column; empty: all numeric
  /// A column: the texts of its categories, in the order of their codes. Empty, as all of it may
  /// be, for a column of numbers, or of categories that the file itself has numbers for.
  std::vector<std::vector<std::string>> categories{};
  std::vector<row_origin> origins{};  ///< for messages; empty: the rows are from no file

  [[nodiscard]] bool sparse() const noexcept { return !row_begin.empty(); }
  /// "row 3" of the table, from 0; or, of a file, `"a.csv", row 4`, from 1.
  [[nodiscard, gnu::cold]] std::string row_name(std::int64_t row) const {
    const auto after = std::upper_bound(
        origins.begin(), origins.end(), row,
        [](std::int64_t wanted, const row_origin& each) { return wanted < each.begin; });
    if (after == origins.begin()) return formatted("row {}", row);
    const row_origin& from = *(after - 1);
    return formatted("\"{}\", row {}", from.path, row - from.begin + from.first_row + 1);
  }
  /// NaN where the value is missing.
  [[nodiscard]] float at(std::int64_t row, std::int64_t of_column) const noexcept {
    const auto r = static_cast<std::size_t>(row);
    if (!sparse()) {
      return values[r * static_cast<std::size_t>(columns) + static_cast<std::size_t>(of_column)];
    }
    const auto first = column.begin() + row_begin[r];
    const auto last = column.begin() + row_begin[r + 1];
    const auto found = std::lower_bound(first, last, of_column);
    return found != last && *found == of_column
               ? value[static_cast<std::size_t>(found - column.begin())]
               : std::numeric_limits<float>::quiet_NaN();
  }
};

}  // namespace parx::trees
