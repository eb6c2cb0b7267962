// simd: loads and stores memory as SIMD registers of elements.
//
// A `unit` is one register's worth of memory, unpacked into the type in which its elements are
// computed. The vector types of GCC and Clang are used rather than loops over elements: those
// become SIMD code only at some optimisation levels, and only when `out == a` can be proved
// harmless. Memory is reached by memcpy: buffers may be unaligned, and of another type of the same
// width (long and long long).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail::simd {

#if defined(PARX_VECTORS_AVX512)
inline constexpr std::size_t register_bytes = 64;
#elif defined(PARX_VECTORS_AVX2)
inline constexpr std::size_t register_bytes = 32;
#else
inline constexpr std::size_t register_bytes = 16;
#endif

template <typename T, std::size_t Bytes = register_bytes>
struct vector_type {
  typedef T type __attribute__((vector_size(Bytes)));
};
template <typename T>
using vector_of = typename vector_type<T>::type;

// The elements of a 16-bit type, once widened, fill two registers. Which element goes to which
// place does not matter, as long as storing puts it back.
template <typename T>
struct unit {
  static constexpr std::size_t parts = is_half<T> ? 2 : 1;
  vector_of<arithmetic_type<T>> part[parts];
};

/// A vector of T as long as the vector V in bytes.
template <typename T, typename V>
using vector_like = typename vector_type<T, sizeof(V)>::type;

#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2) || defined(__FP_FAST_FMAF)
inline constexpr bool has_fma = true;
#else
inline constexpr bool has_fma = false;
#endif

[[nodiscard, gnu::always_inline]] inline float fma(float a, float b, float c) noexcept {
  if constexpr (has_fma) return __builtin_fmaf(a, b, c);
  else return a * b + c;
}
[[nodiscard, gnu::always_inline]] inline double fma(double a, double b, double c) noexcept {
  if constexpr (has_fma) return __builtin_fma(a, b, c);
  else return a * b + c;
}
/// a * b + c of each element, rounded once where the processor has the instruction. By name,
/// because compilers do not agree on when to fuse `a * b + c`: tuned for AMD's Zen, g++ 12 fuses in
/// some loops and not in others. Without the instruction both operations round.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V fma(V a, V b, V c) noexcept {
  [[maybe_unused]] constexpr bool of_floats = sizeof a[0] == sizeof(float);
#if defined(PARX_VECTORS_AVX512)
  if constexpr (sizeof(V) == 64) {
    if constexpr (of_floats) return V(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
    else return V(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
  }
#endif
#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)
  if constexpr (sizeof(V) == 32) {
    if constexpr (of_floats) return V(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
    else return V(_mm256_fmadd_pd(__m256d(a), __m256d(b), __m256d(c)));
  } else if constexpr (sizeof(V) == 16) {
    if constexpr (of_floats) return V(_mm_fmadd_ps(__m128(a), __m128(b), __m128(c)));
    else return V(_mm_fmadd_pd(__m128d(a), __m128d(b), __m128d(c)));
  }
#endif
  if constexpr (!has_fma) return a * b + c;
  for (std::size_t i = 0; i < sizeof(V) / sizeof a[0]; ++i) a[i] = fma(a[i], b[i], c[i]);
  return a;
}

/// The correctly rounded square root of each element. std::sqrt is not vectorised, because it may
/// set errno.
template <typename T>
[[nodiscard]] inline vector_of<T> square_root(vector_of<T> x) noexcept {
#if defined(PARX_VECTORS_AVX512)
  // With a mask of ones, as in load_float16.
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<vector_of<T>>(_mm512_maskz_sqrt_ps(0xFFFF, std::bit_cast<__m512>(x)));
  } else {
    return std::bit_cast<vector_of<T>>(_mm512_maskz_sqrt_pd(0xFF, std::bit_cast<__m512d>(x)));
  }
#elif defined(PARX_VECTORS_AVX2)
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<vector_of<T>>(_mm256_sqrt_ps(std::bit_cast<__m256>(x)));
  } else {
    return std::bit_cast<vector_of<T>>(_mm256_sqrt_pd(std::bit_cast<__m256d>(x)));
  }
#else
  for (std::size_t i = 0; i < register_bytes / sizeof(T); ++i) x[i] = std::sqrt(x[i]);
  return x;
#endif
}

/// An unsigned integer of the width of a floating T.
template <typename T>
using word_of = std::conditional_t<
    sizeof(T) == 2, std::uint16_t,
    std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>;
template <typename T>
using bits_of = vector_of<word_of<T>>;

template <typename T>
[[nodiscard]] inline bits_of<T> bits_in(vector_of<T> value) noexcept {
  return std::bit_cast<bits_of<T>>(value);
}

using floats = vector_of<float>;
using words = vector_of<std::uint32_t>;
#if defined(PARX_VECTORS_AVX2)
inline constexpr vector_of<std::int32_t> first_elements{0, 1, 2, 3, 4, 5, 6, 7};
#endif

#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)

[[nodiscard]] inline unit<float16> load_float16(const std::byte* from) noexcept {
  unit<float16> result;
  for (std::size_t p = 0; p < 2; ++p) {
#if defined(PARX_VECTORS_AVX512)
    const auto* const source = reinterpret_cast<const __m256i_u*>(from + p * sizeof(__m256i));
    // With a mask of ones: the plain intrinsics read an undefined register, which g++ 12 warns of.
    const __m512 wide = _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(source));
#else
    const auto* const source = reinterpret_cast<const __m128i_u*>(from + p * sizeof(__m128i));
    __m256 wide = _mm256_cvtph_ps(_mm_loadu_si128(source));
#if defined(__clang__)
    // clang 14 would turn comparisons of widened values into ones of halves, which run one by one.
    asm("" : "+x"(wide));
#endif
#endif
    result.part[p] = std::bit_cast<floats>(wide);
  }
  return result;
}

inline void store_float16(std::byte* to, const floats (&part)[2]) noexcept {
  for (std::size_t p = 0; p < 2; ++p) {
#if defined(PARX_VECTORS_AVX512)
    const auto wide = std::bit_cast<__m512>(part[p]);
    const __m256i narrow = _mm512_maskz_cvtps_ph(0xFFFF, wide, _MM_FROUND_TO_NEAREST_INT);
#else
    const auto wide = std::bit_cast<__m256>(part[p]);
    const __m128i narrow = _mm256_cvtps_ph(wide, _MM_FROUND_TO_NEAREST_INT);
#endif
    std::memcpy(to + p * sizeof narrow, &narrow, sizeof narrow);
  }
}

#else

[[nodiscard]] inline unit<float16> load_float16(const std::byte* from) noexcept {
  words pairs;
  std::memcpy(&pairs, from, register_bytes);
  return {{widen_float16<floats>(words(pairs & 0xFFFFU)),
           widen_float16<floats>(words(pairs >> 16U))}};
}

inline void store_float16(std::byte* to, const floats (&part)[2]) noexcept {
  const words pairs = narrow_float16<words>(part[0]) | (narrow_float16<words>(part[1]) << 16U);
  std::memcpy(to, &pairs, register_bytes);
}

#endif

// Two bfloat16 share a word, so that no shuffle is needed to widen them.
[[nodiscard]] inline unit<bfloat16> load_bfloat16(const std::byte* from) noexcept {
  words pairs;
  std::memcpy(&pairs, from, register_bytes);
  return {{std::bit_cast<floats>(pairs << 16U), std::bit_cast<floats>(pairs & 0xFFFF0000U)}};
}

// Rounds as narrow_bfloat16, unless the lower half of a NaN has bits set, from which rounding would
// carry into its payload. A NaN that came out of arithmetic on bfloat16 values has none.
inline void store_bfloat16(std::byte* to, const floats (&part)[2]) noexcept {
  words rounded[2];
  for (std::size_t p = 0; p < 2; ++p) {
    const auto bits = std::bit_cast<words>(part[p]);
    rounded[p] = bits + 0x7FFFU + ((bits >> 16U) & 1U);
  }
  const words pairs = (rounded[0] >> 16U) | (rounded[1] & 0xFFFF0000U);
  std::memcpy(to, &pairs, register_bytes);
}

template <typename T>
[[nodiscard]] inline unit<T> load_unit(const std::byte* from) noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return load_bfloat16(from);
  } else if constexpr (std::is_same_v<T, float16>) {
    return load_float16(from);
  } else {
    unit<T> result;
    std::memcpy(&result.part[0], from, register_bytes);
    return result;
  }
}

/// The 16-bit floats are rounded here.
template <typename T>
inline void store_unit(std::byte* to, const unit<T>& value) noexcept {
  if constexpr (std::is_same_v<T, bfloat16>) {
    store_bfloat16(to, value.part);
  } else if constexpr (std::is_same_v<T, float16>) {
    store_float16(to, value.part);
  } else {
    std::memcpy(to, &value.part[0], register_bytes);
  }
}

/// The same for the end of a buffer, where `bytes` may be less than a register; the rest is zero.
template <typename T>
[[nodiscard]] inline unit<T> load_unit(const std::byte* from, std::size_t bytes) noexcept {
  if (bytes == register_bytes) [[likely]] return load_unit<T>(from);
  std::byte whole[register_bytes] = {};
  std::memcpy(whole, from, bytes);
  return load_unit<T>(whole);
}

template <typename T>
inline void store_unit(std::byte* to, const unit<T>& value, std::size_t bytes) noexcept {
  if (bytes == register_bytes) [[likely]] return store_unit<T>(to, value);
  std::byte whole[register_bytes];
  store_unit<T>(whole, value);
  std::memcpy(to, whole, bytes);
}

/// The first `count` floats at `from`, fewer than a register; the other elements are zero. Nothing
/// beyond them is read.
[[nodiscard, gnu::always_inline]] inline floats load_first(const float* from,
                                                           std::size_t count) noexcept {
#if defined(PARX_VECTORS_AVX512)
  return floats(_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1U), from));
#elif defined(PARX_VECTORS_AVX2)
  const auto mask = first_elements < static_cast<std::int32_t>(count);
  return floats(_mm256_maskload_ps(from, __m256i(mask)));
#else
  floats result{};
  std::memcpy(&result, from, count * sizeof(float));
  return result;
#endif
}
/// Writes the first `count` elements, fewer than a register.
[[gnu::always_inline]] inline void store_first(float* to, floats value,
                                               std::size_t count) noexcept {
#if defined(PARX_VECTORS_AVX512)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1U << count) - 1U), __m512(value));
#elif defined(PARX_VECTORS_AVX2)
  const auto mask = first_elements < static_cast<std::int32_t>(count);
  _mm256_maskstore_ps(to, __m256i(mask), __m256(value));
#else
  std::memcpy(to, &value, count * sizeof(float));
#endif
}

}  // namespace parx::detail::simd
