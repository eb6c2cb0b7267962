// transposed_squares: squares of a matrix, transposed on their way into registers.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>

#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Squares of elements are transposed in registers: 8 x 8 floats or 4 x 4 doubles with AVX.
inline constexpr std::size_t square_bytes = simd::register_bytes >= 32 ? 32 : 16;
template <typename T>
inline constexpr std::size_t square_side = square_bytes / sizeof(T);
template <typename T>
using square_vector = typename simd::vector_type<T, square_bytes>::type;
template <typename T>
using square = square_vector<T>[square_side<T>];

template <typename T>
[[nodiscard, gnu::always_inline]] inline square_vector<T> load_side(const T* from) noexcept {
  square_vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename T>
[[gnu::always_inline]] inline void store_side(T* to, const square_vector<T>& v) noexcept {
  std::memcpy(to, &v, sizeof v);
}

// r[p] = element p of row(0), of row(1), ...: as many rows and elements as a square has sides.

#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)

/// The four floats at `low` and at `high`: a load into one half of a register needs no shuffle.
[[nodiscard, gnu::always_inline]] inline square_vector<float> load_halves(
    const float* low, const float* high) noexcept {
  return square_vector<float>(
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1));
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<float>& r, Row row) noexcept {
#pragma GCC unroll 2
  for (std::size_t p = 0; p < 8; p += 4) {
    const auto r04 = load_halves(row(0) + p, row(4) + p), r15 = load_halves(row(1) + p, row(5) + p);
    const auto r26 = load_halves(row(2) + p, row(6) + p), r37 = load_halves(row(3) + p, row(7) + p);
    const auto low_01 = __builtin_shufflevector(r04, r15, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto high_01 = __builtin_shufflevector(r04, r15, 2, 10, 3, 11, 6, 14, 7, 15);
    const auto low_23 = __builtin_shufflevector(r26, r37, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto high_23 = __builtin_shufflevector(r26, r37, 2, 10, 3, 11, 6, 14, 7, 15);
    r[p] = __builtin_shufflevector(low_01, low_23, 0, 1, 8, 9, 4, 5, 12, 13);
    r[p + 1] = __builtin_shufflevector(low_01, low_23, 2, 3, 10, 11, 6, 7, 14, 15);
    r[p + 2] = __builtin_shufflevector(high_01, high_23, 0, 1, 8, 9, 4, 5, 12, 13);
    r[p + 3] = __builtin_shufflevector(high_01, high_23, 2, 3, 10, 11, 6, 7, 14, 15);
  }
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<double>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  const auto r2 = load_side(row(2)), r3 = load_side(row(3));
  const auto even_01 = __builtin_shufflevector(r0, r1, 0, 4, 2, 6);
  const auto odd_01 = __builtin_shufflevector(r0, r1, 1, 5, 3, 7);
  const auto even_23 = __builtin_shufflevector(r2, r3, 0, 4, 2, 6);
  const auto odd_23 = __builtin_shufflevector(r2, r3, 1, 5, 3, 7);
  r[0] = __builtin_shufflevector(even_01, even_23, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(odd_01, odd_23, 0, 1, 4, 5);
  r[2] = __builtin_shufflevector(even_01, even_23, 2, 3, 6, 7);
  r[3] = __builtin_shufflevector(odd_01, odd_23, 2, 3, 6, 7);
}

#else

template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<float>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  const auto r2 = load_side(row(2)), r3 = load_side(row(3));
  const auto low_01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const auto high_01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const auto low_23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const auto high_23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(low_01, low_23, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(low_01, low_23, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(high_01, high_23, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(high_01, high_23, 2, 3, 6, 7);
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<double>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  r[0] = __builtin_shufflevector(r0, r1, 0, 2);
  r[1] = __builtin_shufflevector(r0, r1, 1, 3);
}

#endif

/// The squares of few_rows.hpp: with AVX-512, 16 x 16 floats, whose rows are lines of the cache.
#if defined(PARX_VECTORS_AVX512)
template <typename T>
inline constexpr std::size_t wide_side = std::is_same_v<T, float> ? 16 : square_side<T>;
#else
template <typename T>
inline constexpr std::size_t wide_side = square_side<T>;
#endif
template <typename T>
using wide_vector = typename simd::vector_type<T, wide_side<T> * sizeof(T)>::type;
template <typename T>
using wide_square = wide_vector<T>[wide_side<T>];

#if defined(PARX_VECTORS_AVX512)

// Of two registers: one instruction each.
#define PARX_TWO_REGISTERS(name, ...)                                                  \
  [[nodiscard, gnu::always_inline]] inline wide_vector<float> name(                    \
      wide_vector<float> a, wide_vector<float> b) noexcept {                           \
    return __builtin_shufflevector(a, b, __VA_ARGS__);                                 \
  }
PARX_TWO_REGISTERS(interleave_low, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
PARX_TWO_REGISTERS(interleave_high, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
PARX_TWO_REGISTERS(low_pairs, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
PARX_TWO_REGISTERS(high_pairs, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
PARX_TWO_REGISTERS(low_halves, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
PARX_TWO_REGISTERS(high_halves, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
PARX_TWO_REGISTERS(even_quarters, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
PARX_TWO_REGISTERS(odd_quarters, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#undef PARX_TWO_REGISTERS

#endif

template <typename T, typename Row>
[[gnu::always_inline]] inline void load_wide_transposed(wide_square<T>& r, Row row) noexcept {
#if defined(PARX_VECTORS_AVX512)
  if constexpr (std::is_same_v<T, float>) {
    using V = wide_vector<T>;
    V of_four[16];  // [4 g + e]: elements e, 4 + e, 8 + e, 12 + e of rows 4 g to 4 g + 3
#pragma GCC unroll 4
    for (std::size_t g = 0; g < 16; g += 4) {
      V a, b, c, d;
      std::memcpy(&a, row(g), sizeof a);
      std::memcpy(&b, row(g + 1), sizeof b);
      std::memcpy(&c, row(g + 2), sizeof c);
      std::memcpy(&d, row(g + 3), sizeof d);
      const V low_ab = interleave_low(a, b), high_ab = interleave_high(a, b);
      const V low_cd = interleave_low(c, d), high_cd = interleave_high(c, d);
      of_four[g] = low_pairs(low_ab, low_cd);
      of_four[g + 1] = high_pairs(low_ab, low_cd);
      of_four[g + 2] = low_pairs(high_ab, high_cd);
      of_four[g + 3] = high_pairs(high_ab, high_cd);
    }
#pragma GCC unroll 4
    for (std::size_t e = 0; e < 4; ++e) {
      const V a = of_four[e], b = of_four[4 + e], c = of_four[8 + e], d = of_four[12 + e];
      const V low_ab = low_halves(a, b), low_cd = low_halves(c, d);
      const V high_ab = high_halves(a, b), high_cd = high_halves(c, d);
      r[e] = even_quarters(low_ab, low_cd);
      r[4 + e] = odd_quarters(low_ab, low_cd);
      r[8 + e] = even_quarters(high_ab, high_cd);
      r[12 + e] = odd_quarters(high_ab, high_cd);
    }
  } else {
    load_transposed(r, row);
  }
#else
  load_transposed(r, row);
#endif
}

}  // namespace parx::detail::product
