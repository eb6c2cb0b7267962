// row_lists: which of this rank's rows are in which node: a node has a range of one list.
//
// A split reorders its node's range in place: rows that go left first, each side ascending. The
// side is looked up by the row's code at the split's column, so bins, missing values and categories
// are one case. Blocks of rows are divided in parallel, into a second list: from its front what
// goes left, from its back what goes right.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/bins.hpp>

namespace parx::inline PARX_ABI::trees {

/// first ... last - 1 of the list.
struct row_range {
  std::size_t first = 0;
  std::size_t last = 0;
};

/// A node that is split.
struct row_split {
  row_range rows;
  std::size_t column;
  std::vector<std::uint8_t> goes_left;  ///< by code: 1 or 0
};

class row_lists {
 public:
  explicit row_lists(const bins& data) : data_(&data), rows_(data.rows()), other_(data.rows()) {}

  /// All rows in one range, which is returned.
  row_range reset() {
    std::iota(rows_.begin(), rows_.end(), std::uint32_t{0});
    return {0, rows_.size()};
  }
  [[nodiscard]] std::span<const std::uint32_t> rows_of(row_range range) const noexcept {
    return std::span(rows_).subspan(range.first, range.last - range.first);
  }

  /// Returns for each split where the rows that go right begin.
  [[nodiscard]] std::vector<std::size_t> split(std::span<const row_split> splits) {
    std::vector<block> blocks;
    for (std::size_t s = 0; s < splits.size(); ++s) {
      const row_range all = splits[s].rows;
      for (std::size_t first = all.first; first < all.last; first += rows_of_a_block) {
        blocks.push_back({s, {first, std::min(first + rows_of_a_block, all.last)}, 0, 0, 0});
      }
    }
    parallel_for(blocks.size(), 1, [&](std::size_t first, std::size_t last) {
      for (std::size_t b = first; b < last; ++b) divide(splits[blocks[b].split], blocks[b]);
    });
    std::vector<std::size_t> middles;
    for (const row_split& split : splits) middles.push_back(split.rows.first);
    for (const block& each : blocks) middles[each.split] += each.left;
    std::vector<std::size_t> left_at;
    for (const row_split& split : splits) left_at.push_back(split.rows.first);
    std::vector<std::size_t> right_at = middles;
    for (block& each : blocks) {
      each.left_to = left_at[each.split];
      each.right_to = right_at[each.split];
      left_at[each.split] += each.left;
      right_at[each.split] += each.rows.last - each.rows.first - each.left;
    }
    parallel_for(blocks.size(), 1, [&](std::size_t first, std::size_t last) {
      for (std::size_t b = first; b < last; ++b) copy_back(blocks[b]);
    });
    return middles;
  }

 private:
  static constexpr std::size_t rows_of_a_block = 8192;

  struct block {
    std::size_t split;
    row_range rows;
    std::size_t left;  ///< how many go left
    std::size_t left_to;
    std::size_t right_to;
  };

  void divide(const row_split& split, block& each) {
    data_->with_column(split.column, [&](const auto& code_of) {
      std::size_t front = each.rows.first;
      std::size_t back = each.rows.last;
      for (std::size_t i = each.rows.first; i < each.rows.last; ++i) {
        const std::uint32_t row = rows_[i];
        const std::size_t left = split.goes_left[code_of(row)];
        // Both are free until the block is full. Writing both saves a branch that nobody predicts.
        other_[front] = row;
        other_[back - 1] = row;
        front += left;
        back -= 1 - left;
      }
      each.left = front - each.rows.first;
    });
  }
  void copy_back(const block& each) {
    const auto at = [](std::vector<std::uint32_t>& rows, std::size_t i) {
      return rows.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const std::size_t middle = each.rows.first + each.left;
    std::copy(at(other_, each.rows.first), at(other_, middle), at(rows_, each.left_to));
    std::reverse_copy(at(other_, middle), at(other_, each.rows.last), at(rows_, each.right_to));
  }

  const bins* data_;
  std::vector<std::uint32_t> rows_;
  std::vector<std::uint32_t> other_;
};

}  // namespace parx::trees
