// Tables for the tests of trees, made from row numbers; and their parts as ranks hold them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <parx/trees/sampling.hpp>
#include <parx/trees/table.hpp>
#include <parx/trees/tree.hpp>

namespace generated {

using parx::trees::table;

/// From 0 up to, but not, 1.
inline double uniform(std::uint64_t row, std::uint64_t column) {
  return static_cast<double>(parx::trees::hash_of(row, column) >> 11) * 0x1p-53;
}

/// Nine columns: numbers, some missing in columns 2 and 6, of few values in 5; categories in 3 (20,
/// some missing) and 7 (3). The label is 0 or 1, weights lie between 0.1 and 3.1.
inline table mixed(std::int64_t rows) {
  constexpr std::size_t columns = 9;
  table made;
  made.rows = rows;
  made.columns = columns;
  made.kinds.assign(columns, parx::trees::column_kind::numeric);
  made.kinds[3] = made.kinds[7] = parx::trees::column_kind::categorical;
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(rows); ++row) {
    double score = 0;
    for (std::size_t c = 0; c < columns; ++c) {
      double x = uniform(row, c);
      if (c == 3) x = std::floor(x * 20);
      if (c == 5) x = std::floor(x * 10) / 4;
      if (c == 7) x = std::floor(x * 3);
      score += std::sin(x * static_cast<double>(c + 1));
      const bool missing = (c == 2 || c == 3 || c == 6) && uniform(row, 100 + c) < 0.1;
      made.values.push_back(missing ? std::numeric_limits<float>::quiet_NaN()
                                    : static_cast<float>(x));
    }
    const bool positive = uniform(row, 200) < 1 / (1 + std::exp(-score));
    made.label.push_back(positive ? 1.0F : 0.0F);
    made.weight.push_back(static_cast<float>(0.1 + 3 * uniform(row, 201)));
  }
  return made;
}

/// The rows of `ranks` ranks, one after the other, made from the numbers from `first_row` on. The
/// label counts which of five columns are above a half: columns 5 r ... 5 r + 4 for the rows of
/// rank r.
inline table by_rank(int ranks, std::int64_t rows_of_rank, std::size_t width,
                     std::uint64_t first_row) {
  table made;
  made.rows = rows_of_rank * ranks;
  made.columns = static_cast<std::int64_t>(width);
  for (std::int64_t row = 0; row < made.rows; ++row) {
    const auto number = first_row + static_cast<std::uint64_t>(row);
    const auto first = static_cast<std::size_t>(row / rows_of_rank) * 5;
    float label = 0;
    for (std::size_t c = 0; c < width; ++c) {
      const double x = uniform(number, c);
      made.values.push_back(static_cast<float>(x));
      if (c >= first && c < first + 5 && x > 0.5) label += 1;
    }
    made.label.push_back(label);
  }
  return made;
}

/// Rows first ... last - 1 of a dense table.
inline table part(const table& all, std::int64_t first, std::int64_t last) {
  table made;
  made.rows = last - first;
  made.columns = all.columns;
  made.kinds = all.kinds;
  const auto copy = [&](const std::vector<float>& from, std::int64_t width) {
    if (from.empty()) return std::vector<float>{};
    return std::vector<float>(from.begin() + first * width, from.begin() + last * width);
  };
  made.values = copy(all.values, all.columns);
  made.label = copy(all.label, 1);
  made.weight = copy(all.weight, 1);
  return made;
}

/// What rank `rank` of `ranks` holds, equally much.
inline table even_part(const table& all, int rank, int ranks) {
  return part(all, all.rows * rank / ranks, all.rows * (rank + 1) / ranks);
}

/// What rank `rank` of `ranks` holds: unequal parts, and of three ranks or more rank 1 nothing.
inline table ragged_part(const table& all, int rank, int ranks) {
  const auto share = [&](int r) { return ranks >= 3 && r == 1 ? 0 : 1 + r % 3; };
  std::int64_t before = 0;
  std::int64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    total += share(r);
    if (r < rank) before += share(r);
  }
  return part(all, all.rows * before / total, all.rows * (before + share(rank)) / total);
}

/// The same rows, absent where they are NaN.
inline table sparse(const table& dense) {
  table made = dense;
  made.values.clear();
  made.row_begin.push_back(0);
  for (std::int64_t row = 0; row < dense.rows; ++row) {
    for (std::int32_t c = 0; c < dense.columns; ++c) {
      const float x = dense.at(row, c);
      if (std::isnan(x)) continue;
      made.column.push_back(c);
      made.value.push_back(x);
    }
    made.row_begin.push_back(static_cast<std::int64_t>(made.column.size()));
  }
  return made;
}

/// All bytes of all fields, hashed: NaN is equal to itself.
inline std::uint64_t fingerprint(const std::vector<parx::trees::tree>& trees) {
  std::uint64_t hash = 1;
  const auto add = [&hash](const auto& field) {
    hash = parx::trees::hash_of(hash, field.size());
    for (const std::byte byte : std::as_bytes(std::span(field))) {
      hash = parx::trees::hash_of(hash, static_cast<std::uint64_t>(byte));
    }
  };
  for (const auto& tree : trees) {
    parx::trees::visit_fields(tree, [&add](auto, const auto& field) { add(field); });
  }
  return hash;
}

}  // namespace generated
