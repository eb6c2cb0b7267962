// sampling: which rows and columns a tree sees, from the seed and global numbers alone.
//
// A row's draw is a hash of the seed, the tree and the row's number among all ranks' rows, so it is
// the same whichever rank holds the row. Columns are drawn without replacement: those with the
// smallest hashes. A node's columns are among those of its depth, which are among the tree's.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::trees {

/// splitmix64's finaliser (Steele, Lea, Flood 2014) of two words.
[[nodiscard]] constexpr std::uint64_t hash_of(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t x = a * 0x9e3779b97f4a7c15U + b + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  x ^= x >> 31;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// The stream of draws for tree number `tree`.
[[nodiscard]] constexpr std::uint64_t tree_seed(std::uint64_t seed, std::uint64_t tree) noexcept {
  return hash_of(hash_of(0x7472656573, seed), tree);
}

/// Whether a tree is made with this row: true for `part` of all rows.
[[nodiscard]] inline bool takes_row(std::uint64_t of_tree, std::int64_t global_row,
                                    double part) noexcept {
  const std::uint64_t draw = hash_of(of_tree, static_cast<std::uint64_t>(global_row));
  return static_cast<double>(draw >> 11) < part * 0x1p53;
}

/// `part` of `columns`, rounded down but at least one, in ascending order.
[[nodiscard]] inline std::vector<std::size_t> draw_columns(std::vector<std::size_t> columns,
                                                           double part, std::uint64_t stream) {
  const auto count = static_cast<std::size_t>(static_cast<double>(columns.size()) * part);
  if (count >= columns.size()) return columns;
  std::sort(columns.begin(), columns.end(), [stream](std::size_t a, std::size_t b) {
    const std::uint64_t left = hash_of(stream, a);
    const std::uint64_t right = hash_of(stream, b);
    return left != right ? left < right : a < b;
  });
  columns.resize(std::max<std::size_t>(count, 1));
  std::sort(columns.begin(), columns.end());
  return columns;
}

/// The columns that the nodes of a tree may be split at.
class column_sampler {
 public:
  column_sampler(std::size_t columns, double by_tree, double by_level, double by_node,
                 std::uint64_t of_tree)
      : by_level_(by_level), by_node_(by_node), stream_(of_tree) {
    of_tree_.resize(columns);
    std::iota(of_tree_.begin(), of_tree_.end(), std::size_t{0});
    of_tree_ = draw_columns(std::move(of_tree_), by_tree, hash_of(stream_, 1));
  }
  /// Ascending.
  [[nodiscard]] std::vector<std::size_t> of_node(int depth, int node) const {
    const auto at_depth = hash_of(hash_of(stream_, 2), static_cast<std::uint64_t>(depth));
    const auto at_node = hash_of(hash_of(stream_, 3), static_cast<std::uint64_t>(node));
    return draw_columns(draw_columns(of_tree_, by_level_, at_depth), by_node_, at_node);
  }

 private:
  double by_level_;
  double by_node_;
  std::uint64_t stream_;
  std::vector<std::size_t> of_tree_;
};

}  // namespace parx::trees
