// partition: how a vector is cut into one block per rank, block 0 first, without gaps.
//
// Even blocks differ by at most one element (the first ones are longer) and take no memory; uneven
// ones (all_gather_v and the like) have a size each. Algorithms need not distinguish them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI {

class partition {
 public:
  partition() = default;

  /// `total` elements in `parts` blocks, as equal as can be.
  [[nodiscard]] static partition even(std::size_t total, int parts) noexcept {
    partition made;
    made.total_ = total;
    made.parts_ = parts;
    return made;
  }

  /// Block i has counts[i] elements; zeros are fine.
  [[nodiscard]] static partition uneven(std::span<const std::size_t> counts) {
    partition made;
    made.parts_ = static_cast<int>(counts.size());
    made.begins_.reserve(counts.size() + 1);
    made.begins_.push_back(0);
    for (const std::size_t each : counts) made.begins_.push_back(made.begins_.back() + each);
    made.total_ = made.begins_.back();
    return made;
  }

  [[nodiscard]] int parts() const noexcept { return parts_; }
  [[nodiscard]] std::size_t total() const noexcept { return total_; }
  [[nodiscard]] bool is_even() const noexcept { return begins_.empty(); }

  /// Where block i starts; offset(parts()) == total().
  [[nodiscard]] std::size_t offset(int i) const noexcept {
    return begins_.empty() ? chunk_begin(total_, parts_, i) : begins_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::size_t count(int i) const noexcept { return offset(i + 1) - offset(i); }

  /// Elements of the largest block.
  [[nodiscard]] std::size_t largest() const noexcept {
    std::size_t most = 0;
    for (int i = 0; i < parts_; ++i) most = std::max(most, count(i));
    return most;
  }

  /// Block i of a buffer that holds all blocks.
  [[nodiscard]] region block(place where, int i) const noexcept {
    return {where, offset(i), count(i)};
  }
  /// Blocks first to last - 1, which lie side by side.
  [[nodiscard]] region blocks(place where, int first, int last) const noexcept {
    return {where, offset(first), offset(last) - offset(first)};
  }
  /// Block i in a buffer that holds only this block.
  [[nodiscard]] region alone(place where, int i) const noexcept { return {where, 0, count(i)}; }

  friend bool operator==(const partition&, const partition&) = default;

 private:
  std::size_t total_ = 0;
  int parts_ = 0;
  std::vector<std::size_t> begins_;  ///< empty when the blocks are even
};

}  // namespace parx
