// axis_extents: the shape of a message's data, in message_options and on the wire.
//
// At most eight axes, the slowest first. Any contiguous range of integers converts to it, such as a
// tensor's shape, so comm does not depend on the tensor chapter.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string>
#include <type_traits>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI {

class axis_extents {
 public:
  static constexpr std::size_t most = 8;

  /// No shape: given() is false.
  constexpr axis_extents() noexcept = default;
  axis_extents(std::initializer_list<std::size_t> extents) { assign(extents); }
  /// Throws usage_error for more than eight axes. An empty range is the shape of a scalar.
  template <typename Range>
  requires(!std::same_as<Range, axis_extents>) && requires(const Range& range) {
    requires std::contiguous_iterator<decltype(std::begin(range))>;
    requires std::integral<std::remove_cvref_t<decltype(*std::begin(range))>>;
  }
  axis_extents(const Range& range) {  // NOLINT(google-explicit-constructor)
    assign(range);
  }

  [[nodiscard]] bool given() const noexcept { return given_; }
  [[nodiscard]] std::size_t axes() const noexcept { return axes_; }
  [[nodiscard]] std::size_t operator[](std::size_t axis) const noexcept { return extents_[axis]; }
  [[nodiscard]] const std::size_t* begin() const noexcept { return extents_.data(); }
  [[nodiscard]] const std::size_t* end() const noexcept { return extents_.data() + axes_; }
  /// Whether their product is `count`.
  [[nodiscard]] bool are_of(std::size_t count) const noexcept {
    std::size_t product = 1;
    for (const std::size_t each : *this) {
      if (__builtin_mul_overflow(product, each, &product)) return false;
    }
    return product == count;
  }
  friend bool operator==(const axis_extents& a, const axis_extents& b) noexcept {
    return a.given_ == b.given_ && std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  template <typename Range>
  void assign(const Range& range) {
    const auto size = static_cast<std::size_t>(std::distance(std::begin(range), std::end(range)));
    require(size <= most, "a message carries at most {} extents, not {}", most, size);
    std::transform(std::begin(range), std::end(range), extents_.begin(),
                   [](auto each) { return static_cast<std::size_t>(each); });
    axes_ = size;
    given_ = true;
  }

  std::array<std::size_t, most> extents_{};
  std::size_t axes_ = 0;
  bool given_ = false;
};

/// "2 x 3 x 4", or "1 element" for a scalar.
[[nodiscard]] inline std::string to_string(const axis_extents& extents) {
  return extents.axes() == 0 ? "1 element" : joined_text(extents, " x ");
}

}  // namespace parx
