// square_window: the exact sum of squares of a block of floats whose magnitudes are not too far
// apart, in SIMD code.
//
// A square s of a float is exact in double. Adding 1.5 * 2^52 * u to it, where u is a power of two,
// rounds s to a multiple of u, and leaves that multiple in the fraction's bits as an integer, ready
// to be added to others. The difference to s is exact, and goes the same way with a u that is 2^50
// times smaller (pre-rounding: Demmel and Nguyen 2015, "Parallel reproducible summation"). Two such
// levels hold squares of values within 26 powers of two, three within 51.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail {

__extension__ typedef unsigned __int128 uint128;

class square_window {
  using words = simd::words;
  using doubles = simd::vector_of<double>;
  using integers = simd::vector_of<std::uint64_t>;
  typedef float floats __attribute__((vector_size(simd::register_bytes / 2)));
  typedef std::uint32_t float_bits __attribute__((vector_size(simd::register_bytes / 2)));

  static constexpr int level_bits = 50;

 public:
  /// The most in a block: a level's sum is below 2^50 times this and must fit into 63 bits.
  static constexpr std::size_t most_values = 2048;
  /// The size of a block is a multiple of it.
  static constexpr std::size_t lanes = simd::register_bytes / sizeof(float);

  /// Finds the range of a block's magnitudes; sum() reads the block again, from the cache.
  square_window(const float* values, std::size_t count) noexcept : values_(values), count_(count) {
    words largest{}, smallest = ~words{};
    for (std::size_t i = 0; i < count; i += lanes) {
      words magnitude;
      std::memcpy(&magnitude, values + i, sizeof magnitude);
      magnitude &= 0x7FFF'FFFFU;
      largest = largest > magnitude ? largest : magnitude;
      const words less = magnitude - 1U;  // zeros do not count: they become the largest
      smallest = smallest < less ? smallest : less;
    }
    for (std::size_t i = 0; i < lanes; ++i) {
      largest_ = std::max<std::uint32_t>(largest_, largest[i]);
      smallest_ = std::min<std::uint32_t>(smallest_, smallest[i]);
    }
    ++smallest_;
  }

  [[nodiscard]] bool all_zero() const noexcept { return largest_ == 0; }
  [[nodiscard]] bool all_finite() const noexcept { return largest_ < 0x7F80'0000U; }
  /// Whether no value is outside the window of this many levels.
  [[nodiscard]] bool fits(std::size_t levels) const noexcept {
    return smallest_ >= threshold(levels);
  }
  /// Whether a value is too small to be in sum<Levels>(), and not zero.
  [[nodiscard]] bool is_below(std::size_t levels, float value) const noexcept {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & 0x7FFF'FFFFU;
    return magnitude != 0 && magnitude < threshold(levels);
  }

  /// units * 2^exponent.
  struct level {
    std::int64_t units;
    int exponent;
  };

  /// The sum of all squares but those of values below the window, as the sum of its levels. All
  /// values must be finite.
  template <std::size_t Levels>
  [[nodiscard]] std::array<level, Levels> sum() const noexcept {
    return fits(Levels) ? sum<Levels>([](floats value) { return value; })
                        : sum<Levels>([least = threshold(Levels)](floats value) {
                            const auto bits = std::bit_cast<float_bits>(value);
                            const auto kept = (bits & 0x7FFF'FFFFU) >= least;
                            return std::bit_cast<floats>(bits & std::bit_cast<float_bits>(kept));
                          });
  }

 private:
  template <std::size_t Levels, typename Select>
  [[nodiscard]] std::array<level, Levels> sum(Select select) const noexcept {
    std::array<double, Levels> rounders;
    for (std::size_t l = 0; l < Levels; ++l) {
      rounders[l] = std::bit_cast<double>(
          (static_cast<std::uint64_t>(unit_of(l) + 52 + 1023) << 52U) | (1ULL << 51U));
    }
    std::array<integers, Levels> sums{};
    constexpr std::size_t step = sizeof(floats) / sizeof(float);
    for (std::size_t i = 0; i < count_; i += step) {
      floats part;
      std::memcpy(&part, values_ + i, sizeof part);
      const doubles value = __builtin_convertvector(select(part), doubles);
      doubles rest = value * value;
      for (std::size_t l = 0; l < Levels; ++l) {
        const doubles rounded = rest + rounders[l];
        sums[l] += std::bit_cast<integers>(rounded);
        rest -= rounded - rounders[l];
      }
    }
    std::array<level, Levels> found;
    for (std::size_t l = 0; l < Levels; ++l) {
      // Modulo 2^64, like the sums.
      std::uint64_t units = 0 - std::bit_cast<std::uint64_t>(rounders[l]) * count_;
      for (std::size_t i = 0; i < step; ++i) units += sums[l][i];
      found[l] = {static_cast<std::int64_t>(units), unit_of(l)};
    }
    return found;
  }

  /// All squares are below two to this power.
  [[nodiscard]] int top() const noexcept {
    return 2 * (static_cast<int>(largest_ >> 23U) - 127 + 1);
  }
  /// The exponent of the unit of a level.
  [[nodiscard]] int unit_of(std::size_t l) const noexcept {
    return top() - level_bits * (static_cast<int>(l) + 1);
  }
  /// From this magnitude on, squares are multiples of the last level's unit. Denormals are always
  /// below it, because arithmetic takes them for zero under flush_denormals.
  [[nodiscard]] std::uint32_t threshold(std::size_t levels) const noexcept {
    const int exponent = unit_of(levels - 1) / 2 + 23 + 127;
    return static_cast<std::uint32_t>(std::max(exponent, 1)) << 23U;
  }

  const float* values_;
  std::size_t count_;
  std::uint32_t largest_ = 0;     ///< of the magnitudes' bits
  std::uint32_t smallest_ = ~0U;  ///< of the magnitudes' bits, zeros left out
};

}  // namespace parx::detail
