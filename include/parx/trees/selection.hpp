// selection: the exact weighted quantiles of numbers that are spread over ranks.
//
// A float becomes a 32-bit key in the order of floats. The ranks look for keys from the highest
// bits down: a pass counts, for each prefix that still matters, how much weight has each of its
// continuations, in one all_reduce of integers for all columns; a prefix matters while it holds a
// wanted rank, or as long as the column may have few distinct values. Six passes (12 bits, then
// five times 4) find whole keys; or eight of 4 bits, which send less for columns of few values. The
// answer is the one of a sort of all ranks' numbers, so it does not depend on who holds which
// number. A rank sorts its own numbers once; a count is then the difference of two binary searches,
// so that a pass does not touch the numbers.
//
// This serves the cuts of columns, the leaves of absolute error (a column is a leaf) and medians.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/abi.hpp>
#include <parx/core/function_ref.hpp>
#include <parx/core/parallel_for.hpp>

namespace parx::inline PARX_ABI::trees {

/// Keys compare as the numbers do. -0 has the key of 0; `x` is not NaN.
[[nodiscard]] inline std::uint32_t key_of(float x) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(x == 0 ? 0.0F : x);
  return bits ^ ((bits >> 31) != 0 ? 0xffffffffU : 0x80000000U);
}
[[nodiscard]] inline float value_of(std::uint32_t key) noexcept {
  return std::bit_cast<float>(key ^ ((key >> 31) != 0 ? 0x80000000U : 0xffffffffU));
}

/// One rank's numbers of a column.
class sorted_column {
 public:
  /// `weights`, which are kept by reference, are those of the rows; none: each number weighs 1.
  explicit sorted_column(std::span<const std::uint32_t> weights = {}) : weights_(weights) {}

  /// A number of this row, which is not NaN; before sort().
  void add(std::size_t row, float value) {
    if (weights_.empty()) return keys_.push_back(key_of(value));
    items_.push_back(std::uint64_t{key_of(value)} << 32 | weights_[row]);
  }
  void sort() {
    if (weights_.empty()) return sort(keys_, 0);
    sort(items_, 32);
    keys_.reserve(items_.size());
    below_.assign(1, 0);
    for (const std::uint64_t item : std::exchange(items_, {})) {
      keys_.push_back(static_cast<std::uint32_t>(item >> 32));
      below_.push_back(below_.back() + static_cast<std::int64_t>(item & 0xffffffffU));
    }
  }

  /// The position of the first key from `from` on that is not below `key`.
  [[nodiscard]] std::size_t find(std::uint64_t key, std::size_t from) const noexcept {
    if (key > 0xffffffffU) return keys_.size();
    const auto first = keys_.begin() + static_cast<std::ptrdiff_t>(from);
    return static_cast<std::size_t>(
        std::lower_bound(first, keys_.end(), static_cast<std::uint32_t>(key)) - keys_.begin());
  }
  /// Of the numbers before that position.
  [[nodiscard]] std::int64_t weight_before(std::size_t position) const noexcept {
    return below_.empty() ? static_cast<std::int64_t>(position) : below_[position];
  }

 private:
  /// By the 32 bits from `low` on: least significant digit first, 11 bits a pass.
  template <typename Item>
  static void sort(std::vector<Item>& items, int low) {
    if (items.size() < 1024) return std::sort(items.begin(), items.end());
    std::vector<Item> other(items.size());
    std::array<std::size_t, 2048> place{};
    for (int shift = low; shift < low + 32; shift += 11) {
      const auto digit = [shift](Item item) {
        return static_cast<std::size_t>((item >> shift) & 2047U);
      };
      place.fill(0);
      for (const Item item : items) ++place[digit(item)];
      std::size_t sum = 0;
      for (std::size_t& count : place) sum += std::exchange(count, sum);
      for (const Item item : items) other[place[digit(item)]++] = item;
      items.swap(other);
    }
  }

  std::span<const std::uint32_t> weights_;
  std::vector<std::uint64_t> items_;  ///< key << 32 | weight, until they are sorted
  std::vector<std::uint32_t> keys_;
  std::vector<std::int64_t> below_;  ///< one longer than the keys; empty where all weights are 1
};

/// A key found, with the weight, on all ranks, of the numbers below it and of its own.
struct selected_key {
  std::uint32_t key;
  std::int64_t below;
  std::int64_t weight;
};

/// What is wanted of a column. Rank r is the smallest number v such that the numbers up to v weigh
/// more than r; r is from 0 up to, but not, the column's weight.
struct wanted_keys {
  std::vector<std::int64_t> ranks;  ///< ascending
  std::size_t distinct = 0;         ///< find all keys where there are no more than so many
};

/// Ascending. All keys of the column if it has at most wanted_keys::distinct, else at least those
/// that hold a wanted rank. Empty for a column without numbers.
using selected_keys = std::vector<selected_key>;

/// The key that holds rank `rank`, which was wanted.
[[nodiscard]] inline const selected_key& holder_of(const selected_keys& keys, std::int64_t rank) {
  return *(std::upper_bound(keys.begin(), keys.end(), rank,
                            [](std::int64_t r, const selected_key& key) { return r < key.below; }) -
           1);
}

/// Bits by pass.
enum class key_steps { many_values, few_values };

namespace detail {

inline constexpr int steps_of_many[] = {12, 4, 4, 4, 4, 4};
inline constexpr int steps_of_few[] = {4, 4, 4, 4, 4, 4, 4, 4};

/// The search in one column, equal on all ranks.
class key_search {
 public:
  [[nodiscard]] std::size_t counts(int step) const { return active_.size() << step; }

  /// Adds this rank's weights of the continuations of each active prefix by `step` bits.
  void count(const sorted_column& mine, int step, std::span<std::int64_t> into) const {
    const int shift = 32 - bits_ - step;
    std::size_t at = 0;
    std::size_t position = 0;
    for (const prefix& each : active_) {
      std::uint64_t next = std::uint64_t{each.bits} << step;
      position = mine.find(next << shift, position);
      for (int i = 0; i < 1 << step; ++i, ++at) {
        const std::size_t end = mine.find(++next << shift, position);
        into[at] += mine.weight_before(end) - mine.weight_before(position);
        position = end;
      }
    }
  }

  /// Goes on to the continuations that matter. `counts` are the sums over all ranks.
  void descend(int step, std::span<const std::int64_t> counts,
               function_ref<wanted_keys(std::int64_t total)> ask) {
    if (bits_ == 0) {
      std::int64_t total = 0;
      for (const std::int64_t count : counts) total += count;
      wanted_ = total > 0 ? ask(total) : wanted_keys{};
    }
    const auto filled =
        std::count_if(counts.begin(), counts.end(), [](std::int64_t count) { return count > 0; });
    if (static_cast<std::size_t>(filled) > wanted_.distinct) takes_all_ = false;
    std::vector<prefix> next;
    std::size_t at = 0;
    for (const prefix& each : active_) {
      std::int64_t below = each.below;
      for (std::uint32_t i = 0; i < 1U << step; ++i, ++at) {
        const std::int64_t count = counts[at];
        const auto rank = std::lower_bound(wanted_.ranks.begin(), wanted_.ranks.end(), below);
        const bool holds = rank != wanted_.ranks.end() && *rank < below + count;
        if (count > 0 && (takes_all_ || holds))
          next.push_back({each.bits << step | i, below, count});
        below += count;
      }
    }
    active_ = std::move(next);
    bits_ += step;
  }

  [[nodiscard]] selected_keys keys() const {
    selected_keys found;
    for (const prefix& each : active_) found.push_back({each.bits, each.below, each.weight});
    return found;
  }

 private:
  struct prefix {
    std::uint32_t bits;
    std::int64_t below;  ///< the weight of all numbers below
    std::int64_t weight;
  };

  std::vector<prefix> active_{{0, 0, 0}};
  wanted_keys wanted_;
  bool takes_all_ = true;
  int bits_ = 0;
};

}  // namespace detail

/// Collective: an all_reduce for each step, the same steps on all ranks. The keys of each of
/// `columns`, of which every rank has as many; `ask(column, weight of all ranks)` says what is
/// wanted, the same on all ranks, and is asked only about columns that have numbers. Throws
/// parx::error when communication fails.
[[nodiscard]] inline std::vector<selected_keys> select(
    process_group& group, std::span<const sorted_column> columns,
    function_ref<wanted_keys(std::size_t column, std::int64_t total)> ask,
    key_steps steps = key_steps::many_values) {
  std::vector<detail::key_search> searches(columns.size());
  std::vector<std::size_t> begin(columns.size() + 1);
  std::vector<std::int64_t> counts;
  const std::span<const int> bits = steps == key_steps::many_values
                                        ? std::span<const int>(detail::steps_of_many)
                                        : std::span<const int>(detail::steps_of_few);
  for (const int step : bits) {
    for (std::size_t c = 0; c < columns.size(); ++c) {
      begin[c + 1] = begin[c] + searches[c].counts(step);
    }
    counts.assign(begin.back(), 0);
    const auto of_column = [&](std::size_t c) {
      return std::span(counts).subspan(begin[c], begin[c + 1] - begin[c]);
    };
    parallel_for(columns.size(), 1, [&](std::size_t first, std::size_t last) {
      for (std::size_t c = first; c < last; ++c) searches[c].count(columns[c], step, of_column(c));
    });
    if (!counts.empty()) all_reduce(group, counts);
    for (std::size_t c = 0; c < columns.size(); ++c) {
      searches[c].descend(step, of_column(c), [&](std::int64_t total) { return ask(c, total); });
    }
  }
  std::vector<selected_keys> found;
  for (const auto& search : searches) found.push_back(search.keys());
  return found;
}

}  // namespace parx::trees
