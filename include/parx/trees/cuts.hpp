// cuts: where the values of each column are cut into bins, from all ranks' rows.
//
// Let W be the column's total weight and B the number of bins. Cut k (1 ... B - 1) is the smallest
// value v such that the values up to v weigh more than ceil(k W / B); repeated cuts and the minimum
// are dropped, and a column with at most B distinct values gets a bin for each. Weights are
// integers here (31 bits below the greatest weight), so the sums are exact. bin(x) is the number of
// cuts that are not above x, and a split at a cut sends x < cut left.
//
// A missing value is NaN, or absent from a sparse row. It has a bin of its own after the others. A
// column with missing values somewhere has at most 255 bins of values where max_bin is 256, so that
// a code stays a byte. A categorical column has a bin for each code from 0 to the greatest one.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/error.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/trees/selection.hpp>
#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

struct column_cuts {
  std::vector<float> cuts;  ///< ascending
  float smallest = 0;       ///< of the values on all ranks, where there are some
  float largest = 0;
  bool has_missing = false;  ///< on any rank
  int categories = 0;        ///< codes from 0; 0 for a column of numbers
  bool empty = true;         ///< no rank has a value: the column is never split

  /// Bins of values; the code of a missing value is the next.
  [[nodiscard]] int value_bins() const noexcept {
    if (empty) return 0;
    return categories > 0 ? categories : static_cast<int>(cuts.size()) + 1;
  }
  [[nodiscard]] int codes() const noexcept { return value_bins() + (has_missing ? 1 : 0); }
};

/// The weights of a table as integers: w 2^(31 - e), rounded and at least 1, where 2^e is above all
/// ranks' weights. Empty where no rank has weights: each row then weighs 1.
[[nodiscard]] inline std::vector<std::uint32_t> integer_weights(process_group& group,
                                                                const table& rows) {
  std::array<double, 1> greatest{0};
  for (const float weight : rows.weight) {
    greatest[0] = std::max(greatest[0], static_cast<double>(weight));
  }
  all_reduce(group, greatest, {.op = reduce_op::max});
  std::vector<std::uint32_t> integers;
  if (greatest[0] == 0) return integers;
  const auto count = static_cast<std::size_t>(rows.rows);
  integers.reserve(count);
  const int shift = 30 - std::ilogb(greatest[0]);
  for (std::size_t row = 0; row < count; ++row) {
    const double weight = rows.weight.empty() ? 1.0 : static_cast<double>(rows.weight[row]);
    const double scaled = std::nearbyint(std::ldexp(weight, shift));
    integers.push_back(static_cast<std::uint32_t>(std::clamp(scaled, 1.0, 2147483647.0)));
  }
  return integers;
}

namespace detail {

/// The values of a table by column; of a sparse one its entries, sorted once.
class values_by_column {
 public:
  values_by_column(const table& rows, std::size_t columns) : rows_(&rows) {
    if (!rows.sparse()) return;
    begin_.resize(columns + 1);
    for (const std::int32_t column : rows.column) ++begin_[static_cast<std::size_t>(column) + 1];
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    entries_.resize(rows.column.size());
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows.rows); ++row) {
      const auto end = static_cast<std::size_t>(rows.row_begin[row + 1]);
      for (auto i = static_cast<std::size_t>(rows.row_begin[row]); i < end; ++i) {
        const auto column = static_cast<std::size_t>(rows.column[i]);
        entries_[next[column]++] = {static_cast<std::uint32_t>(row), rows.value[i]};
      }
    }
  }

  /// visit(row, column, value) for the values of columns first ... last - 1 that are not missing.
  template <typename Visit>
  void visit(std::size_t first, std::size_t last, const Visit& visit) const {
    if (rows_->sparse()) {
      for (std::size_t column = first; column < last; ++column) {
        for (std::size_t i = begin_[column]; i < begin_[column + 1]; ++i) {
          const auto [row, value] = entries_[i];
          if (!std::isnan(value)) visit(std::size_t{row}, column, value);
        }
      }
      return;
    }
    const auto width = static_cast<std::size_t>(rows_->columns);
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows_->rows); ++row) {
      for (std::size_t column = first; column < last; ++column) {
        const float value = rows_->values[row * width + column];
        if (!std::isnan(value)) visit(row, column, value);
      }
    }
  }

 private:
  struct entry {
    std::uint32_t row;
    float value;
  };
  const table* rows_;
  std::vector<std::size_t> begin_;
  std::vector<entry> entries_;
};

[[nodiscard]] inline std::string name_of_column(const table& rows, std::size_t column) {
  return column < rows.names.size() ? formatted("\"{}\"", rows.names[column])
                                    : formatted("{}", column);
}

/// The greatest code of a categorical column on this rank, -1 if it has none.
[[nodiscard]] inline std::int64_t greatest_code(const table& rows, const values_by_column& values,
                                                std::size_t column) {
  std::int64_t greatest = -1;
  values.visit(column, column + 1, [&](std::size_t row, std::size_t, float value) {
    if (!(value >= 0 && value < 65535 && value == std::floor(value))) {
      throw_error(errc::bad_data,
                  "row {}, column {}: {} is no category; categories are integers from 0 to 65,534",
                  row, name_of_column(rows, column), value);
    }
    greatest = std::max(greatest, static_cast<std::int64_t>(value));
  });
  return greatest;
}

/// Of the smallest number, of the cuts 1 ... bins - 1 and of the largest number.
[[nodiscard]] inline std::vector<std::int64_t> quantile_ranks(std::int64_t total, int bins) {
  std::vector<std::int64_t> ranks{0};
  // ceil(k total / bins) without the product, which may be too large.
  const std::int64_t whole = total / bins;
  const std::int64_t rest = total % bins;
  for (int k = 1; k < bins; ++k) ranks.push_back(k * whole + (k * rest + bins - 1) / bins);
  for (std::int64_t& rank : ranks) rank = std::min(rank, total - 1);
  ranks.push_back(total - 1);
  return ranks;
}

/// Of a column of numbers, from its selected keys.
inline void fill_cuts(const selected_keys& keys, std::int64_t total, int bins, column_cuts& into) {
  into.smallest = value_of(keys.front().key);
  into.largest = value_of(keys.back().key);
  std::int64_t found = 0;
  for (const selected_key& key : keys) found += key.weight;
  if (found == total && keys.size() <= static_cast<std::size_t>(bins)) {
    for (std::size_t i = 1; i < keys.size(); ++i) into.cuts.push_back(value_of(keys[i].key));
    return;
  }
  const std::vector<std::int64_t> ranks = quantile_ranks(total, bins);
  for (std::size_t k = 1; k + 1 < ranks.size(); ++k) {
    const float cut = value_of(holder_of(keys, ranks[k]).key);
    if (cut > (into.cuts.empty() ? into.smallest : into.cuts.back())) into.cuts.push_back(cut);
  }
}

}  // namespace detail

/// Collective. The same on all ranks, whatever rows they hold. `columns` are those of all ranks
/// (a sparse table may end before the last), `weights` integer_weights(). All ranks throw
/// errc::bad_data for a category that is none.
[[nodiscard]] inline std::vector<column_cuts> find_cuts(process_group& group, const table& rows,
                                                        std::size_t columns,
                                                        std::span<const std::uint32_t> weights,
                                                        int max_bin) {
  std::vector<column_cuts> cuts(columns);
  std::vector<std::int64_t> codes(columns, -1);
  const detail::values_by_column values(rows, columns);
  parx::detail::agree(&group, call_site::current(), [&] {
    for (std::size_t c = 0; c < rows.kinds.size(); ++c) {
      if (rows.kinds[c] == column_kind::categorical) {
        codes[c] = detail::greatest_code(rows, values, c);
      }
    }
  });
  if (columns > 0) all_reduce(group, codes, {.op = reduce_op::max});
  std::array<std::int64_t, 2> all{weights.empty() ? rows.rows : 0, rows.sparse() ? 1 : 0};
  for (const std::uint32_t weight : weights) all[0] += weight;
  all_reduce(group, all);
  const bool sparse = all[1] > 0;  // a rank without rows does not know it
  // It bounds the memory of the keys, and of the counts.
  const std::size_t columns_at_a_time = sparse ? 4096 : 32;

  for (std::size_t first = 0; first < columns; first += columns_at_a_time) {
    const std::size_t count = std::min(columns_at_a_time, columns - first);
    std::vector<sorted_column> sorted(count, sorted_column(weights));
    constexpr std::size_t together = 4;  // columns of a pass over the rows
    parallel_for(count, together, [&](std::size_t from, std::size_t to) {
      values.visit(first + from, first + to, [&](std::size_t row, std::size_t column, float value) {
        sorted[column - first].add(row, value);
      });
      for (std::size_t i = from; i < to; ++i) sorted[i].sort();
    });
    std::vector<std::int64_t> totals(count, 0);
    const auto bins_of = [&](std::int64_t total) {
      return total < all[0] && max_bin == 256 ? 255 : max_bin;
    };
    const auto found = select(
        group, sorted,
        [&](std::size_t i, std::int64_t total) {
          totals[i] = total;
          const int bins = bins_of(total);
          const bool categorical = codes[first + i] >= 0;
          return wanted_keys{
              categorical ? std::vector<std::int64_t>{} : detail::quantile_ranks(total, bins),
              categorical ? 0 : static_cast<std::size_t>(bins)};
        },
        sparse ? key_steps::few_values : key_steps::many_values);
    for (std::size_t i = 0; i < count; ++i) {
      column_cuts& column = cuts[first + i];
      column.empty = totals[i] == 0;
      column.has_missing = totals[i] < all[0];
      column.categories = static_cast<int>(codes[first + i]) + 1;
      if (!column.empty && column.categories == 0) {
        detail::fill_cuts(found[i], totals[i], bins_of(totals[i]), column);
      }
    }
  }
  return cuts;
}

}  // namespace parx::trees
