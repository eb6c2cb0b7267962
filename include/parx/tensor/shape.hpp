// shape: the extents of a tensor, at most eight, held inline.
//
// Rank 0 is a scalar of one element. Axes are given as int; a negative axis counts from the end, as
// in NumPy. Everything here is a pure function of plain values.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// The most axes that a tensor has.
inline constexpr std::size_t max_rank = 8;

/// An extent for reshape(), also written -1: whatever the other extents leave.
inline constexpr std::size_t infer = static_cast<std::size_t>(-1);

namespace detail {

/// An integer of any type as an extent. -1 is `infer`, as in PyTorch.
struct extent {
  template <std::integral Integer>
  constexpr extent(Integer given)  // NOLINT(google-explicit-constructor)
      : value(static_cast<std::size_t>(given)) {
    if constexpr (std::is_signed_v<Integer>)
      require(given >= -1, "an extent of {}: a shape has no negative ones", given);
  }
  std::size_t value;
};

}  // namespace detail

class shape {
 public:
  constexpr shape() noexcept = default;
  /// {rows, 3}, of integers of any types. Throws usage_error for a negative one that is not -1.
  constexpr shape(std::initializer_list<detail::extent> extents) {
    for (const detail::extent each : extents) push_back(each.value);
  }
  constexpr explicit shape(std::span<const std::size_t> extents) {
    require(extents.size() <= max_rank, "a tensor has at most {} axes, not {}", max_rank,
            extents.size());
    for (const std::size_t extent : extents) extents_[rank_++] = extent;
  }

  [[nodiscard]] constexpr std::size_t rank() const noexcept { return rank_; }
  /// Number of elements: the product of the extents, 1 for a scalar.
  [[nodiscard]] constexpr std::size_t size() const noexcept {
    std::size_t product = 1;
    for (const std::size_t extent : *this) product *= extent;
    return product;
  }
  [[nodiscard]] constexpr std::size_t operator[](std::size_t axis) const noexcept {
    return extents_[axis];
  }
  [[nodiscard]] constexpr std::size_t& operator[](std::size_t axis) noexcept {
    return extents_[axis];
  }
  [[nodiscard]] constexpr const std::size_t* begin() const noexcept { return extents_.data(); }
  [[nodiscard]] constexpr const std::size_t* end() const noexcept {
    return extents_.data() + rank_;
  }
  /// The last extent; 1 for a scalar.
  [[nodiscard]] constexpr std::size_t back() const noexcept {
    return rank_ == 0 ? 1 : extents_[rank_ - 1];
  }

  constexpr void push_back(std::size_t extent) {
    require(rank_ < max_rank, "a tensor has at most {} axes", max_rank);
    extents_[rank_++] = extent;
  }
  constexpr void erase(std::size_t axis) noexcept {
    std::copy(begin() + axis + 1, end(), extents_.begin() + static_cast<std::ptrdiff_t>(axis));
    extents_[--rank_] = 0;
  }
  constexpr void insert(std::size_t axis, std::size_t extent) {
    require(rank_ < max_rank, "a tensor has at most {} axes", max_rank);
    for (std::size_t i = rank_; i > axis; --i) extents_[i] = extents_[i - 1];
    extents_[axis] = extent;
    ++rank_;
  }

  friend constexpr bool operator==(const shape& a, const shape& b) noexcept {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::size_t, max_rank> extents_{};
  std::size_t rank_ = 0;
};

/// "(2, 3, 4)", "(5)" and "()" for a scalar.
[[nodiscard]] inline std::string to_string(const shape& s) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < s.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += s[axis] == infer ? std::string("-1") : std::to_string(s[axis]);
  }
  return text + ")";
}

/// Bytes of a tensor of this shape. Throws usage_error for more than 2^60, which no machine has,
/// and where the product of the extents overflows.
[[nodiscard]] inline std::size_t byte_count(const shape& s, std::size_t element_bytes) {
  std::size_t bytes = element_bytes;
  bool fits = true;
  for (const std::size_t extent : s) fits &= !__builtin_mul_overflow(bytes, extent, &bytes);
  if (!fits || bytes > std::size_t{1} << 60U)
    throw_usage("a tensor of shape {} would take more than 2^60 bytes", to_string(s));
  return bytes;
}

/// `axis` as an index in [0, rank). Throws usage_error when it is outside.
[[nodiscard]] inline std::size_t resolve_axis(int axis, const shape& s) {
  const int rank = static_cast<int>(s.rank());
  const int resolved = axis < 0 ? axis + rank : axis;
  require(resolved >= 0 && resolved < rank, "axis {} does not exist in a tensor of shape {}", axis,
          to_string(s));
  return static_cast<std::size_t>(resolved);
}

/// Axes of a tensor as an argument: 1, {0, 1}, or a vector of them; none for {}.
class axis_list {
 public:
  /// Every axis, of any tensor.
  [[nodiscard]] static constexpr axis_list all() noexcept { return axis_list(every_axis{}); }
  constexpr axis_list(int axis)  // NOLINT(google-explicit-constructor)
      : axis_list(std::span<const int>(&axis, 1)) {}
  /// Throws usage_error for more than max_rank axes.
  constexpr axis_list(std::initializer_list<int> axes)
      : axis_list(std::span<const int>(axes.begin(), axes.size())) {}
  template <typename Axes>
    requires std::is_convertible_v<const Axes&, std::span<const int>>
  constexpr axis_list(const Axes& axes)  // NOLINT(google-explicit-constructor)
      : count_(std::span<const int>(axes).size()) {
    require(count_ <= max_rank, "a tensor has at most {} axes, not {}", max_rank, count_);
    std::copy_n(std::span<const int>(axes).begin(), count_, axes_.begin());
  }

  [[nodiscard]] constexpr bool is_all() const noexcept { return count_ == unlimited; }
  /// Those of a tensor of shape `s`, as they were given. Throws usage_error for one that it has
  /// not, and for one that is given twice.
  [[nodiscard]] std::span<const int> of(const shape& s) const {
    const auto all = std::span<const int>(axes_).first(is_all() ? s.rank() : count_);
    std::array<bool, max_rank> seen{};
    for (const int axis : all) {
      if (std::exchange(seen[resolve_axis(axis, s)], true)) [[unlikely]]
        throw_usage("axis {} is given twice, for a tensor of shape {}", axis, to_string(s));
    }
    return all;
  }

 private:
  struct every_axis {};
  static constexpr std::size_t unlimited = max_rank + 1;

  constexpr explicit axis_list(every_axis) noexcept : count_(unlimited) {}

  std::array<int, max_rank> axes_{0, 1, 2, 3, 4, 5, 6, 7};
  std::size_t count_;
};

/// Of each axis, how many elements apart its neighbours are.
using strides = std::array<std::size_t, max_rank>;

/// Row-major strides, in elements.
[[nodiscard]] constexpr strides contiguous_strides(const shape& s) noexcept {
  strides result{};
  std::size_t step = 1;
  for (std::size_t axis = s.rank(); axis-- > 0;) {
    result[axis] = step;
    step *= s[axis];
  }
  return result;
}

/// NumPy's rule: shapes are aligned at the last axis, extents are equal or one of them is 1. Throws
/// usage_error naming both shapes where they do not fit.
[[nodiscard]] inline shape broadcast_shapes(const shape& a, const shape& b) {
  const shape& longer = a.rank() >= b.rank() ? a : b;
  const shape& shorter = a.rank() >= b.rank() ? b : a;
  shape result = longer;
  const std::size_t lead = longer.rank() - shorter.rank();
  for (std::size_t axis = 0; axis < shorter.rank(); ++axis) {
    std::size_t& extent = result[lead + axis];
    const std::size_t other = shorter[axis];
    if (extent == other || other == 1) continue;
    require(extent == 1,
            "shapes {} and {} cannot be broadcast together: axis {} has extents {} and {}",
            to_string(a), to_string(b),
            static_cast<std::ptrdiff_t>(axis) - static_cast<std::ptrdiff_t>(shorter.rank()), extent,
            other);
    extent = other;
  }
  return result;
}

/// `wanted` with one `infer` replaced so that it has `size` elements. Throws usage_error when the
/// number of elements differs.
[[nodiscard]] inline shape resolve_reshape(const shape& from, const shape& wanted) {
  shape result = wanted;
  std::size_t known = 1;
  std::size_t open = max_rank;
  for (std::size_t axis = 0; axis < wanted.rank(); ++axis) {
    if (wanted[axis] != infer) {
      known *= wanted[axis];
      continue;
    }
    require(open == max_rank, "a reshape can infer one extent, not several: {}", to_string(wanted));
    open = axis;
  }
  if (open != max_rank && known != 0) result[open] = from.size() / known;
  require(open == max_rank || known != 0, "cannot infer an extent of {} beside an empty axis",
          to_string(wanted));
  require(result.size() == from.size(),
          "a tensor of shape {} ({} elements) cannot be reshaped to {}", to_string(from),
          from.size(), to_string(wanted));
  return result;
}

}  // namespace parx
