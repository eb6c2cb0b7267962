// bfloat16 and float16: the two 16-bit floating types, stored as bits and computed in float.
//
// Conversion from float and double rounds once, to nearest, ties to even; values that are too large
// become infinity; denormals are kept; a NaN keeps its sign and upper payload and becomes quiet.
// Integers above 2^53 are rounded to double first. The software and the F16C path give the same
// bits. Arithmetic happens in float through the implicit conversion: the sum of two is a float, and
// storing it rounds once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <parx/core/abi.hpp>

#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)
#include <immintrin.h>
#endif

namespace parx::inline PARX_ABI {

namespace detail::simd {

// The formulas serve plain numbers and SIMD vectors alike: Bits is uint32_t with float, or a vector
// of them. They select by masks instead of branches, so that loops over plain numbers become SIMD
// code.

[[nodiscard]] constexpr std::uint32_t mask_of(bool condition) noexcept {
  return condition ? ~0U : 0U;
}
template <typename Lanes>
[[nodiscard]] inline auto mask_of(Lanes comparison) noexcept {  // a vector of 0 and -1 already
  return comparison;
}

template <typename Bits>
[[nodiscard]] constexpr Bits select(Bits mask, Bits yes, Bits no) noexcept {
  return (yes & mask) | (no & ~mask);
}

/// A bfloat16 in the lower half of each lane, as a float.
template <typename Float, typename Bits>
[[nodiscard]] constexpr Float widen_bfloat16(Bits half) noexcept {
  const Bits wide = half << 16U;
  const auto is_nan = std::bit_cast<Bits>(mask_of((wide & 0x7FFFFFFFU) > 0x7F800000U));
  return std::bit_cast<Float>(wide | (is_nan & 0x00400000U));
}

/// The nearest bfloat16, in the lower half of each lane.
template <typename Bits, typename Float>
[[nodiscard]] constexpr Bits narrow_bfloat16(Float value) noexcept {
  const auto bits = std::bit_cast<Bits>(value);
  // 0x7FFF, plus one where the kept part is odd: ties go to even. The largest finite values carry
  // over into infinity, which has no fraction and stays.
  const Bits rounded = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  const auto is_nan = std::bit_cast<Bits>(mask_of((bits & 0x7FFFFFFFU) > 0x7F800000U));
  return select<Bits>(is_nan, bits | 0x00400000U, rounded) >> 16U;
}

/// A float16 in the lower half of each lane, as a float.
template <typename Float, typename Bits>
[[nodiscard]] constexpr Float widen_float16(Bits half) noexcept {
  const Bits magnitude = (half & 0x7FFFU) << 13U;
  const Bits sign = (half & 0x8000U) << 16U;
  // Normal numbers: the exponent's bias goes from 15 to 127.
  const Bits normal = magnitude + (112U << 23U);
  // Infinity and NaN: the exponent becomes all ones, a NaN quiet.
  const auto is_nan = std::bit_cast<Bits>(mask_of(magnitude > 0x0F800000U));
  const Bits special = magnitude | 0x7F800000U | (is_nan & 0x00400000U);
  // Denormals: read them as numbers with the exponent of 2^-14 and a hidden one, and subtract that.
  const Float shifted = std::bit_cast<Float>(normal + (1U << 23U)) - 0x1p-14F;
  const auto is_denormal = std::bit_cast<Bits>(mask_of(magnitude < (1U << 23U)));
  const Bits finite = select<Bits>(is_denormal, std::bit_cast<Bits>(shifted), normal);
  const auto is_special = std::bit_cast<Bits>(mask_of(magnitude >= 0x0F800000U));
  return std::bit_cast<Float>(select<Bits>(is_special, special, finite) | sign);
}

/// The nearest float16, in the lower half of each lane.
template <typename Bits, typename Float>
[[nodiscard]] constexpr Bits narrow_float16(Float value) noexcept {
  const auto bits = std::bit_cast<Bits>(value);
  const Bits magnitude = bits & 0x7FFFFFFFU;
  const Bits sign = (bits >> 16U) & 0x8000U;
  const Bits normal = (magnitude - (112U << 23U) + 0x0FFFU + ((magnitude >> 13U) & 1U)) >> 13U;
  // Below 2^-14: the last bit of 0.5 is worth 2^-24, the denormals' last bit, so that adding 0.5
  // makes the hardware round there.
  const auto is_small = std::bit_cast<Bits>(mask_of(magnitude < 0x38800000U));
  const Float aligned = std::bit_cast<Float>(magnitude & is_small) + 0.5F;
  const Bits denormal = std::bit_cast<Bits>(aligned) - 0x3F000000U;
  const Bits finite = select<Bits>(is_small, denormal, normal);
  // From 65520 on the nearest is infinity. A NaN keeps its upper payload and becomes quiet.
  const auto is_nan = std::bit_cast<Bits>(mask_of(magnitude > 0x7F800000U));
  const Bits large = (is_nan & (((magnitude >> 13U) & 0x03FFU) | 0x0200U)) | 0x7C00U;
  const auto is_large = std::bit_cast<Bits>(mask_of(magnitude >= 0x477FF000U));
  return select<Bits>(is_large, large, finite) | sign;
}

}  // namespace detail::simd

namespace detail {

/// Rounds to odd: a value that is no float becomes the neighbouring float whose last bit is set.
/// The nearest float could lie exactly between two halves, and rounding that to a half could go the
/// wrong way; such a midpoint ends in zeros. (Boldo and Melquiond, "When double rounding is odd")
template <typename T>
[[nodiscard]] constexpr float rounded_to_odd(T value) noexcept {
  const auto nearest = static_cast<float>(value);
  const T back = nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool is_odd = (bits & 1U) != 0;
  if (is_odd || !(back < value || back > value)) return nearest;  // a NaN is neither
  const bool is_too_small = back == 0 || (back > 0 ? back < value : back > value);
  return std::bit_cast<float>(is_too_small ? bits + 1U : bits - 1U);
}

/// A number of any type as a float that rounds to the same half.
template <typename T>
[[nodiscard]] constexpr float for_half(T value) noexcept {
  if constexpr (std::is_integral_v<T>) return rounded_to_odd(static_cast<double>(value));
  else return rounded_to_odd(value);
}

}  // namespace detail

/// 8 exponent and 7 fraction bits: float's range, 2 to 3 decimal digits.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  constexpr bfloat16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::simd::narrow_bfloat16<std::uint32_t>(value))) {}
  template <typename T>
    requires std::is_arithmetic_v<T>
  constexpr explicit(!std::is_same_v<T, double>) bfloat16(T value) noexcept
      : bfloat16(detail::for_half(value)) {}
  [[nodiscard]] static constexpr bfloat16 from_bits(std::uint16_t bits) noexcept {
    return std::bit_cast<bfloat16>(bits);
  }

  constexpr operator float() const noexcept {
    return detail::simd::widen_bfloat16<float>(std::uint32_t{bits});
  }
  constexpr bfloat16 operator-() const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits ^ 0x8000U));
  }
  constexpr bfloat16& operator+=(float other) noexcept { return *this = float{*this} + other; }
  constexpr bfloat16& operator-=(float other) noexcept { return *this = float{*this} - other; }
  constexpr bfloat16& operator*=(float other) noexcept { return *this = float{*this} * other; }
  constexpr bfloat16& operator/=(float other) noexcept { return *this = float{*this} / other; }
};

/// IEEE 754 binary16: 5 exponent and 10 fraction bits, largest value 65504.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  constexpr float16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::simd::narrow_float16<std::uint32_t>(value))) {}
  template <typename T>
    requires std::is_arithmetic_v<T>
  constexpr explicit(!std::is_same_v<T, double>) float16(T value) noexcept
      : float16(detail::for_half(value)) {}
  [[nodiscard]] static constexpr float16 from_bits(std::uint16_t bits) noexcept {
    return std::bit_cast<float16>(bits);
  }

  constexpr operator float() const noexcept {
    return detail::simd::widen_float16<float>(std::uint32_t{bits});
  }
  constexpr float16 operator-() const noexcept {
    return from_bits(static_cast<std::uint16_t>(bits ^ 0x8000U));
  }
  constexpr float16& operator+=(float other) noexcept { return *this = float{*this} + other; }
  constexpr float16& operator-=(float other) noexcept { return *this = float{*this} - other; }
  constexpr float16& operator*=(float other) noexcept { return *this = float{*this} * other; }
  constexpr float16& operator/=(float other) noexcept { return *this = float{*this} / other; }
};

/// Whether T has 16 bits: bfloat16 or float16.
template <typename T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// The type in which numbers of T are computed: float for the 16-bit types, else T.
template <typename T>
using arithmetic_type = std::conditional_t<is_half<T>, float, T>;

/// Converts `count` elements. The two ranges must not overlap.
inline void convert(const bfloat16* from, float* to, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}
inline void convert(const float* from, bfloat16* to, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}
inline void convert(const float16* from, float* to, std::size_t count) noexcept {
  std::size_t i = 0;
#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)
  for (const std::size_t whole = count - count % 8; i < whole; i += 8) {
    const auto* const source = reinterpret_cast<const __m128i_u*>(from + i);
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(source)));
  }
#endif
  for (; i < count; ++i) to[i] = from[i];
}
inline void convert(const float* from, float16* to, std::size_t count) noexcept {
  std::size_t i = 0;
#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)
  for (const std::size_t whole = count - count % 8; i < whole; i += 8) {
    const __m128i rounded = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i_u*>(to + i), rounded);
  }
#endif
  for (; i < count; ++i) to[i] = from[i];
}

namespace detail {

template <typename Half, int FractionBits, int MaxExponent>
struct half_limits {
  static constexpr bool is_specialized = true;
  static constexpr bool is_signed = true;
  static constexpr bool is_integer = false;
  static constexpr bool is_exact = false;
  static constexpr bool is_iec559 = true;
  static constexpr bool is_bounded = true;
  static constexpr bool is_modulo = false;
  static constexpr bool has_infinity = true;
  static constexpr bool has_quiet_NaN = true;
  static constexpr bool has_signaling_NaN = true;
  static constexpr std::float_denorm_style has_denorm = std::denorm_present;
  static constexpr bool has_denorm_loss = false;
  static constexpr bool traps = false;
  static constexpr bool tinyness_before = false;
  static constexpr std::float_round_style round_style = std::round_to_nearest;
  static constexpr int radix = 2;
  static constexpr int digits = FractionBits + 1;
  static constexpr int digits10 = (digits - 1) * 30103 / 100000;
  static constexpr int max_digits10 = digits * 30103 / 100000 + 2;
  static constexpr int max_exponent = MaxExponent;
  static constexpr int min_exponent = 3 - MaxExponent;
  static constexpr int max_exponent10 = (max_exponent - 1) * 30103 / 100000;
  static constexpr int min_exponent10 = (min_exponent - 1) * 30103 / 100000;

  static constexpr Half from(unsigned bits) noexcept {
    return Half::from_bits(static_cast<std::uint16_t>(bits));
  }
  static constexpr unsigned infinity_bits = 0x7FFFU & ~((1U << FractionBits) - 1U);
  static constexpr Half min() noexcept { return from(1U << FractionBits); }
  static constexpr Half max() noexcept { return from(infinity_bits - 1U); }
  static constexpr Half lowest() noexcept { return from(0x8000U | (infinity_bits - 1U)); }
  static constexpr Half epsilon() noexcept { return Half(2.0F / static_cast<float>(1 << digits)); }
  static constexpr Half round_error() noexcept { return Half(0.5F); }
  static constexpr Half infinity() noexcept { return from(infinity_bits); }
  static constexpr Half quiet_NaN() noexcept {
    return from(infinity_bits | (1U << (FractionBits - 1)));
  }
  static constexpr Half signaling_NaN() noexcept {
    return from(infinity_bits | (1U << (FractionBits - 2)));
  }
  static constexpr Half denorm_min() noexcept { return from(1U); }
};

}  // namespace detail
}  // namespace parx

template <>
struct std::numeric_limits<parx::bfloat16> : parx::detail::half_limits<parx::bfloat16, 7, 128> {};
template <>
struct std::numeric_limits<parx::float16> : parx::detail::half_limits<parx::float16, 10, 16> {};
