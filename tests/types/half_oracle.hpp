// An independent model of the 16-bit floats: a value is looked up in the sorted list of all values
// of the type, and the nearest one is found by comparing distances in double. Slow, and nothing
// like the bit formulas that it checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

class half_oracle {
 public:
  half_oracle(int exponent_bits, int fraction_bits) : fraction_bits_(fraction_bits) {
    const std::uint32_t infinity = ((1U << exponent_bits) - 1U) << fraction_bits;
    infinity_ = static_cast<std::uint16_t>(infinity);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    for (std::uint32_t bits = 0; bits <= infinity; ++bits) {
      const int exponent = static_cast<int>(bits >> fraction_bits);
      const int fraction = static_cast<int>(bits & ((1U << fraction_bits) - 1U));
      const int hidden = exponent == 0 ? 0 : 1 << fraction_bits;
      // Infinity stands in the list as the value that would follow the largest finite one: IEEE 754
      // rounds as if the exponent had no end.
      magnitudes_.push_back(
          std::ldexp(fraction + hidden, std::max(exponent, 1) - bias - fraction_bits));
    }
  }

  /// All magnitudes in the order of their bits, from 0 to the one in infinity's place.
  const std::vector<double>& magnitudes() const { return magnitudes_; }

  bool is_nan(std::uint16_t bits) const { return (bits & 0x7FFFU) > infinity_; }

  double decode(std::uint16_t bits) const {
    const std::uint16_t magnitude = bits & 0x7FFFU;
    if (magnitude > infinity_) return std::numeric_limits<double>::quiet_NaN();
    const double value =
        magnitude == infinity_ ? std::numeric_limits<double>::infinity() : magnitudes_[magnitude];
    return (bits & 0x8000U) != 0 ? -value : value;
  }

  /// The nearest value's bits; of two equally near, the even ones. Not for NaN.
  std::uint16_t encode(double value) const {
    const double magnitude = std::fabs(value);
    const auto above = std::lower_bound(magnitudes_.begin(), magnitudes_.end(), magnitude);
    auto index = static_cast<std::uint32_t>(above - magnitudes_.begin());
    if (index > infinity_) index = infinity_;
    if (index > 0 && magnitude < magnitudes_[index]) {
      const double up = magnitudes_[index] - magnitude;
      const double down = magnitude - magnitudes_[index - 1];
      if (down < up || (down == up && index % 2 == 1)) --index;
    }
    return static_cast<std::uint16_t>(index | (std::signbit(value) ? 0x8000U : 0U));
  }

  int fraction_bits() const { return fraction_bits_; }

  static const half_oracle& float16() {
    static const half_oracle oracle(5, 10);
    return oracle;
  }
  static const half_oracle& bfloat16() {
    static const half_oracle oracle(8, 7);
    return oracle;
  }

 private:
  int fraction_bits_;
  std::uint16_t infinity_;
  std::vector<double> magnitudes_;
};
