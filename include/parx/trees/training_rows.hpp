// training_rows: what the ranks agree on about a table before they train on it.
//
// Each rank has some rows, or none. Rows are numbered over all ranks in the order of ranks, so a
// table that is dealt out in contiguous parts has the numbers of its file at any number of ranks;
// only sampling asks for them. The columns are those of all ranks: a rank without rows knows none,
// and of a sparse table it knows those up to the last that it saw.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/error.hpp>
#include <parx/core/hash.hpp>
#include <parx/trees/objectives.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// Equal on all ranks but for first_row.
struct row_numbers {
  std::int64_t first_row = 0;  ///< the number of this rank's first row among all
  std::int64_t rows = 0;       ///< of all ranks
  std::size_t columns = 0;
};

/// Local. Throws errc::bad_data, which names the row.
inline void check_rows(const table& rows, const objective& loss) {
  const auto count = static_cast<std::size_t>(rows.rows);
  const auto fits = [&](std::size_t size, std::string_view what) {
    if (size == count) return;
    throw_error(errc::bad_data, "a table of {} rows has {} {}", count, size, what);
  };
  fits(rows.label.size(), "labels");
  if (!rows.weight.empty()) fits(rows.weight.size(), "weights");
  if (rows.sparse()) {
    fits(rows.row_begin.size() - 1, "sparse rows");
  } else if (rows.values.size() != count * static_cast<std::size_t>(rows.columns)) {
    throw_error(errc::bad_data, "a table of {} rows and {} columns has {} values", count,
                rows.columns, rows.values.size());
  }
  for (std::size_t row = 0; row < count; ++row) {
    const auto place = [&] { return rows.row_name(static_cast<std::int64_t>(row)); };
    if (std::isnan(rows.label[row])) throw_error(errc::bad_data, "{}: the label is NaN", place());
    const float weight = rows.weight.empty() ? 1 : rows.weight[row];
    if (!(weight > 0 && std::isfinite(weight))) {
      throw_error(errc::bad_data, "{}: the weight is {}, not a number above 0", place(), weight);
    }
  }
  loss.check_labels(rows);
}

/// Collective. Throws errc::bad_data on all ranks for bad rows, and for tables that do not fit
/// together.
[[nodiscard]] inline row_numbers number_rows(process_group& group, const table& rows,
                                             const objective& loss) {
  parx::detail::agree(&group, call_site::current(), [&] { check_rows(rows, loss); });
  std::uint64_t kinds = parx::detail::fnv1a("");
  for (std::size_t c = 0; c < rows.kinds.size(); ++c) {
    if (rows.kinds[c] == column_kind::categorical) {
      kinds = parx::detail::fnv1a(formatted("{} ", c), kinds);
    }
  }
  const std::array<std::int64_t, 4> mine{rows.rows, rows.columns, rows.sparse() ? 1 : 0,
                                         static_cast<std::int64_t>(kinds)};
  std::vector<std::array<std::int64_t, 4>> all(static_cast<std::size_t>(group.size()));
  all_gather(group, std::span(mine), std::span(all.front().data(), all.size() * mine.size()));
  row_numbers numbers;
  std::size_t first = all.size();  // the first rank with rows
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto [count, columns, sparse, categorical] = all[rank];
    if (rank < static_cast<std::size_t>(group.rank())) numbers.first_row += count;
    numbers.rows += count;
    numbers.columns = std::max(numbers.columns, static_cast<std::size_t>(columns));
    if (count == 0) continue;
    first = std::min(first, rank);
    if (sparse == 0 && columns != all[first][1]) {
      throw_error(errc::bad_data, "rank {} has {} columns, rank {} has {}", rank, columns, first,
                  all[first][1]);
    }
    if (sparse != all[first][2] || categorical != all[first][3]) {
      throw_error(errc::bad_data, "rank {} and rank {} disagree on which columns are {}", rank,
                  first, sparse != all[first][2] ? "sparse" : "categorical");
    }
  }
  if (numbers.rows == 0) throw_error(errc::bad_data, "no rank has a row to train on");
  return numbers;
}

}  // namespace parx::trees
