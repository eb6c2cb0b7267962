// The sum of squares as one wide integer, by schoolbook arithmetic: an oracle for norms.
#pragma once

#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>

namespace parx_test {

/// A whole number of 4,480 bits, in units of 2^-2200.
class wide_number {
 public:
  static constexpr int unit = -2200;

  void add_square(double value) {
    int exponent = 0;
    const double fraction = std::frexp(std::fabs(value), &exponent);
    const auto significand = static_cast<std::uint64_t>(std::ldexp(fraction, 53));
    add_square(significand, exponent - 53);
  }
  /// Adds (significand * 2^exponent)^2.
  void add_square(std::uint64_t significand, int exponent) {
    const std::uint64_t low = significand & 0xFFFFFFFFU, high = significand >> 32U;
    add(low * low, 2 * exponent);
    add(low * high, 2 * exponent + 33);
    add(high * high, 2 * exponent + 64);
  }
  auto operator<=>(const wide_number& other) const {
    for (std::size_t i = digits_.size(); i-- > 0;) {
      if (digits_[i] != other.digits_[i]) return digits_[i] <=> other.digits_[i];
    }
    return std::strong_ordering::equal;
  }
  bool operator==(const wide_number&) const = default;

 private:
  void add(std::uint64_t value, int exponent) {
    const auto place = static_cast<std::size_t>(exponent - unit);
    for (std::size_t bit = 0; bit < 64; ++bit) {
      if ((value >> bit & 1U) != 0) add_bit(place + bit);
    }
  }
  void add_bit(std::size_t place) {
    std::uint64_t carry = std::uint64_t{1} << (place % 64);
    for (std::size_t i = place / 64; carry != 0; ++i) {
      digits_.at(i) += carry;
      carry = digits_[i] < carry ? 1 : 0;
    }
  }

  std::array<std::uint64_t, 70> digits_{};
};

/// Whether `norm` is the root of `squares`, rounded to the nearest double, ties to even.
inline bool is_root(const wide_number& squares, double norm) {
  if (norm == 0) return squares == wide_number{};
  wide_number below, above;
  if (std::isinf(norm)) {
    below.add_square((std::uint64_t{1} << 54U) - 1, 970);  // the largest double, and half a unit
    return below <= squares;
  }
  int exponent = 0;
  const auto significand =
      static_cast<std::uint64_t>(std::ldexp(std::frexp(norm, &exponent), 53));
  // The middles between it and its neighbours; the lower neighbour of a power of two is nearer.
  const bool power = significand == std::uint64_t{1} << 52U;
  below.add_square(4 * significand - (power ? 1 : 2), exponent - 55);
  above.add_square(4 * significand + 2, exponent - 55);
  const bool even = significand % 2 == 0;
  return even ? below <= squares && squares <= above : below < squares && squares < above;
}

template <typename T>
wide_number sum_of_squares(std::span<const T> values) {
  wide_number sum;
  for (const T value : values) sum.add_square(static_cast<double>(value));
  return sum;
}

}  // namespace parx_test
