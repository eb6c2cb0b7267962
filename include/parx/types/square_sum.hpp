// square_sum: the sum of squares of any number of values, without rounding.
//
// The sum is an integer in units of 2^-2148, the square of the smallest double, in limbs of 32
// bits: a superaccumulator (Neal 2015, "Fast exact summation using small and large
// superaccumulators"). Integers may be added in any order and grouping, so a norm is the same
// however the values are ordered or divided among ranks. A value type without pointers; an object
// belongs to one thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <parx/core/parallel_for.hpp>
#include <parx/types/detail/square_window.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI {

class square_sum {
 public:
  /// Adds the squares of float, double, bfloat16 or float16 values, including denormals even under
  /// flush_denormals; many by the threads of the rank.
  template <typename T>
  void add(std::span<const T> values) {
    constexpr std::size_t grain = 2 * elements_of_a_block;
    if (values.size() <= grain) return add_piece(values);
    *this += ordered_reduce<square_sum>(values.size(), grain,
                                        [&](std::size_t first, std::size_t last) {
                                          square_sum piece;
                                          piece.add_piece(values.subspan(first, last - first));
                                          return piece;
                                        });
  }

  square_sum& operator+=(const square_sum& other) noexcept {
    for (std::size_t i = 0; i < limbs_.size(); ++i) limbs_[i] += other.limbs_[i];
    pending_ += other.pending_;
    count_addition();
    return *this;
  }

  /// The sum as integers. Sums are merged by adding their words one by one, on any number of ranks
  /// up to 2^30: `all_reduce(group, sum.words())` leaves every rank with the sum over all ranks.
  /// The words stay valid, and may be replaced by such a total, until the next call.
  [[nodiscard]] std::span<std::int64_t> words() noexcept {
    carry();
    return limbs_;
  }

  /// The root of the sum, rounded once, to nearest, ties to even (below 2^-1022 twice). NaN if a
  /// value was NaN, else infinity if one was infinite.
  [[nodiscard]] double norm() const noexcept {
    if (limbs_[nans] != 0) return std::numeric_limits<double>::quiet_NaN();
    if (limbs_[infinities] != 0) return std::numeric_limits<double>::infinity();
    square_sum carried = *this;
    carried.carry();
    return carried.root();
  }

 private:
  using wide = detail::uint128;

  // 4196 bits hold the square of every double; the other bits leave room for the sum of 2^64.
  static constexpr std::size_t limbs = 134;
  static constexpr std::size_t infinities = limbs, nans = limbs + 1;  // places of their counts
  static constexpr int lowest_exponent = 2 * -1074;
  static constexpr std::int64_t limb_mask = 0xFFFF'FFFF;

  template <typename T>
  void add_piece(std::span<const T> values) noexcept {
    if constexpr (std::is_same_v<T, double>) {
      for (const double value : values) add_one(value);
    } else {
      constexpr std::size_t block = detail::square_window::most_values;
      for (std::size_t i = 0; i < values.size(); i += block) {
        const std::size_t count = std::min(block, values.size() - i);
        if constexpr (is_half<T>) {
          std::array<float, block> widened;
          convert(values.data() + i, widened.data(), count);
          add_block(widened.data(), count);
        } else {
          add_block(values.data() + i, count);
        }
      }
    }
  }

  /// Adds `units` * 2^exponent.
  void add_at(std::int64_t units, int exponent) noexcept {
    const std::uint64_t magnitude =
        units < 0 ? 0 - static_cast<std::uint64_t>(units) : static_cast<std::uint64_t>(units);
    const auto place = static_cast<unsigned>(exponent - lowest_exponent);
    wide shifted = wide{magnitude} << (place % 32);
    for (std::size_t i = place / 32; i < place / 32 + 3; ++i, shifted >>= 32U) {
      const auto part = static_cast<std::int64_t>(shifted) & limb_mask;
      limbs_[i] += units < 0 ? -part : part;
    }
    count_addition();
  }

  template <typename T>
  void add_one(T value) noexcept {
    using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
    constexpr int fraction_bits = std::numeric_limits<T>::digits - 1;
    constexpr int lowest = std::numeric_limits<T>::min_exponent - 1 - fraction_bits;
    const bits magnitude = std::bit_cast<bits>(value) & (~bits{0} >> 1U);
    const bits hidden = bits{1} << static_cast<unsigned>(fraction_bits);
    const auto biased = static_cast<int>(magnitude >> static_cast<unsigned>(fraction_bits));
    if (biased == 2 * std::numeric_limits<T>::max_exponent - 1) {
      ++limbs_[magnitude % hidden != 0 ? nans : infinities];
      return;
    }
    const wide significand = biased == 0 ? magnitude : magnitude % hidden | hidden;
    const int exponent = 2 * (lowest + std::max(biased, 1) - 1);
    const wide square = significand * significand;
    constexpr unsigned half = 62;
    add_at(static_cast<std::int64_t>(square % (wide{1} << half)), exponent);
    if constexpr (sizeof(T) == 8) {
      add_at(static_cast<std::int64_t>(square >> half), exponent + static_cast<int>(half));
    }
  }

  void add_block(const float* values, std::size_t count) noexcept {
    std::size_t done = 0;
#if !defined(__FAST_MATH__)  // with it, the compiler may simplify (s + u) - u to s
    const std::size_t whole = count - count % detail::square_window::lanes;
    const detail::square_window window(values, whole);
    if (window.all_finite()) {
      done = whole;
      if (window.fits(2)) {
        add_window<2>(window);
      } else if (!window.all_zero()) {
        add_window<3>(window);
        if (!window.fits(3)) add_below<3>(window, values, whole);
      }
    }
#endif
    for (; done < count; ++done) add_one(values[done]);
  }
  template <std::size_t Levels>
  void add_window(const detail::square_window& window) noexcept {
    for (const auto& each : window.sum<Levels>()) add_at(each.units, each.exponent);
  }
  template <std::size_t Levels>
  void add_below(const detail::square_window& window, const float* values,
                 std::size_t count) noexcept {
    std::array<float, detail::square_window::most_values> below;
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
      below[found] = values[i];
      if (window.is_below(Levels, values[i])) ++found;
    }
    for (std::size_t i = 0; i < found; ++i) add_one(below[i]);
  }

  // An addition changes a limb by less than 2^32, so that 2^30 of them, on top of the words of 2^30
  // ranks, stay within 63 bits.
  void count_addition() noexcept {
    if (++pending_ >= 1U << 30U) carry();
  }
  void carry() noexcept {
    for (std::size_t i = 0; i + 1 < limbs; ++i) {
      limbs_[i + 1] += limbs_[i] >> 32;  // rounds down: the limb that stays is not negative
      limbs_[i] &= limb_mask;
    }
    pending_ = 0;
  }

  [[nodiscard]] double root() const noexcept {
    std::size_t top = limbs;
    while (top > 0 && limbs_[top - 1] == 0) --top;
    if (top == 0) return 0;
    // The sum's leading 107 or 108 bits, so that their root has 54: one more than a double.
    const int bits = static_cast<int>(32 * top) -
                     std::countl_zero(static_cast<std::uint32_t>(limbs_[top - 1]));
    const int cut = (bits + bits % 2) - 108;  // even, as lowest_exponent is
    wide leading = 0;
    bool rest = false;
    for (std::size_t i = top; i-- > 0;) {
      const wide limb = static_cast<std::uint64_t>(limbs_[i]);
      const int shift = static_cast<int>(32 * i) - cut;
      if (shift >= 0) {
        leading |= limb << static_cast<unsigned>(shift);
      } else if (shift > -32) {
        leading |= limb >> static_cast<unsigned>(-shift);
        rest |= limb % (wide{1} << static_cast<unsigned>(-shift)) != 0;
      } else {
        rest |= limb != 0;
      }
    }
    auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(leading)));
    while (wide{root} * root > leading) --root;
    while (wide{root + 1} * (root + 1) <= leading) ++root;
    rest |= wide{root} * root != leading;
    const bool up = root % 2 == 1 && (rest || root % 4 == 3);
    return std::ldexp(static_cast<double>(root / 2 + (up ? 1 : 0)),
                      (cut + lowest_exponent) / 2 + 1);
  }

  std::array<std::int64_t, limbs + 2> limbs_{};
  std::uint64_t pending_ = 0;  ///< additions since the last carry
};

}  // namespace parx
