// bf16_direct_256: bf16_direct.hpp with AVX2: operands are rounded in registers of 8 floats.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstddef>

#include <immintrin.h>

#include <parx/tensor/flush_denormals.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>

#define PARX_BF16_AVX2 gnu::target("avx2,fma")

namespace parx::inline PARX_ABI::detail::product::direct_256 {

inline constexpr std::size_t lanes = 8;

/// `one` is 1, which the compiler must not know: see bf16_tile_vector.hpp.
[[PARX_BF16_AVX2, gnu::always_inline]] inline __m256 rounded(__m256 x, __m256 one) noexcept {
  x = _mm256_mul_ps(x, one);
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(last, _mm256_set1_epi32(0x7FFF));
  const __m256i nearest = _mm256_add_epi32(bits, _mm256_andnot_si256(is_nan, half));
  return _mm256_castsi256_ps(_mm256_and_si256(nearest, _mm256_set1_epi32(-0x10000)));
}
/// 8 adjacent values, rounded.
[[PARX_BF16_AVX2, gnu::always_inline]] inline __m256 load(const float* p, __m256 one) noexcept {
  return rounded(_mm256_loadu_ps(p), one);
}
[[PARX_BF16_AVX2, gnu::always_inline]] inline __m256 load(const bfloat16* p,
                                                          __m256 /*one*/) noexcept {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
/// The first `count` of them, and zeros.
template <typename T>
[[PARX_BF16_AVX2, gnu::noinline]] __m256 load_some(const T* p, std::size_t count, __m256 one) {
  T values[lanes] = {};
  std::copy_n(p, std::min(count, lanes), values);
  return load(values, one);
}

/// Adds both chains of 32 terms to the sums.
[[PARX_BF16_AVX2, gnu::always_inline]] inline void add_chains(float* sums, __m256 even,
                                                              __m256 odd) noexcept {
  _mm256_store_ps(sums, _mm256_add_ps(_mm256_load_ps(sums), _mm256_add_ps(even, odd)));
}

/// 8 x 8 floats.
[[PARX_BF16_AVX2, gnu::always_inline]] inline void transpose(__m256 (&r)[lanes]) noexcept {
  __m256 t[lanes];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < lanes; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (std::size_t i = 0; i < lanes; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < lanes; ++i) r[i] = t[i];
}

/// Columns whose terms are adjacent, for `Rows` rows from `row` on.
template <std::size_t Rows, typename T>
[[PARX_BF16_AVX2, gnu::noinline]] void add_squares(const T* b, const bf16_direct_sums& x,
                                                   std::size_t row, __m256 one) {
  for (std::size_t j = 0; j < x.columns; j += lanes) {
    const T* column[lanes];
    for (std::size_t i = 0; i < lanes; ++i) {
      column[i] = b + std::min(j + i, x.columns - 1) * x.b.down;
    }
    for (std::size_t p = 0; p < x.terms; p += bf16_step) {
      __m256 even[Rows] = {}, odd[Rows] = {};
#pragma GCC unroll 1
      for (std::size_t q = p; q < p + bf16_step; q += lanes) {
        __m256 terms[lanes];
        if (q + lanes <= x.terms) [[likely]] {
#pragma GCC unroll 8
          for (std::size_t i = 0; i < lanes; ++i) terms[i] = load(column[i] + q, one);
        } else {
          const std::size_t left = q < x.terms ? x.terms - q : 0;
          for (std::size_t i = 0; i < lanes; ++i) {
            terms[i] = load_some(column[i] + std::min(q, x.terms), left, one);
          }
        }
        transpose(terms);
        const float* const a = x.a + row * x.a_step + q;
#pragma GCC unroll 4
        for (std::size_t i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
          for (std::size_t t = 0; t < lanes; t += 2) {
            even[i] = _mm256_fmadd_ps(_mm256_set1_ps(a[i * x.a_step + t]), terms[t], even[i]);
            odd[i] = _mm256_fmadd_ps(_mm256_set1_ps(a[i * x.a_step + t + 1]), terms[t + 1], odd[i]);
          }
        }
      }
#pragma GCC unroll 4
      for (std::size_t i = 0; i < Rows; ++i) {
        add_chains(x.sums + (row + i) * x.sums_step + j, even[i], odd[i]);
      }
    }
  }
}

/// Adds the terms of 8 lines of b to the chains of `Rows` rows, in 8 columns.
template <std::size_t Rows>
[[PARX_BF16_AVX2, gnu::always_inline]] inline void add_terms(const __m256 (&terms)[lanes],
                                                             const float* a, std::size_t a_step,
                                                             float* even, float* odd,
                                                             std::size_t step) noexcept {
#pragma GCC unroll 4
  for (std::size_t i = 0; i < Rows; ++i) {
    __m256 first = _mm256_load_ps(even + i * step), second = _mm256_load_ps(odd + i * step);
#pragma GCC unroll 4
    for (std::size_t t = 0; t < lanes; t += 2) {
      first = _mm256_fmadd_ps(_mm256_set1_ps(a[i * a_step + t]), terms[t], first);
      second = _mm256_fmadd_ps(_mm256_set1_ps(a[i * a_step + t + 1]), terms[t + 1], second);
    }
    _mm256_store_ps(even + i * step, first);
    _mm256_store_ps(odd + i * step, second);
  }
}

/// Columns that are adjacent: rows of b are read one after the other.
template <std::size_t Rows, typename T>
[[PARX_BF16_AVX2, gnu::noinline]] void add_lines(const T* b, const bf16_direct_sums& x,
                                                 std::size_t row, __m256 one) {
  alignas(64) float chains[2][bf16_most_sums];
  for (std::size_t p = 0; p < x.terms; p += bf16_step) {
    std::fill_n(chains[0], Rows * x.sums_step, 0.0F);
    std::fill_n(chains[1], Rows * x.sums_step, 0.0F);
    // Beyond the terms the padding's +0, which makes a chain's -0 to +0.
    for (std::size_t q = p; q < p + bf16_step; q += lanes) {
      const float* const a = x.a + row * x.a_step + q;
      const T* const line = b + q * x.b.right;
      std::size_t j = 0;
      for (; q + lanes <= x.terms && j + lanes <= x.columns; j += lanes) {
        __m256 terms[lanes];
#pragma GCC unroll 8
        for (std::size_t t = 0; t < lanes; ++t) terms[t] = load(line + t * x.b.right + j, one);
        add_terms<Rows>(terms, a, x.a_step, chains[0] + j, chains[1] + j, x.sums_step);
      }
      for (; j < x.columns; j += lanes) {
        __m256 terms[lanes];
        for (std::size_t t = 0; t < lanes; ++t) {
          const bool is_term = q + t < x.terms;
          terms[t] = load_some(is_term ? line + t * x.b.right + j : b,
                               is_term ? x.columns - j : 0, one);
        }
        add_terms<Rows>(terms, a, x.a_step, chains[0] + j, chains[1] + j, x.sums_step);
      }
    }
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t j = 0; j < x.columns; j += lanes) {
        add_chains(x.sums + (row + i) * x.sums_step + j,
                   _mm256_load_ps(chains[0] + i * x.sums_step + j),
                   _mm256_load_ps(chains[1] + i * x.sums_step + j));
      }
    }
  }
}

template <std::size_t Rows, typename T>
[[PARX_BF16_AVX2]] void add_rows(const T* b, const bf16_direct_sums& x, std::size_t row) {
  __m256 one = _mm256_set1_ps(1);
  __asm__("" : "+x"(one));
  if (x.b.right == 1) add_squares<Rows>(b, x, row, one);
  else add_lines<Rows>(b, x, row, one);
}

inline void multiply(const bf16_direct_sums& x) {
  const flush_denormals scope;
  x.b.values.visit([&](const auto* b) {
    std::size_t i = 0;
    for (; i + 4 <= x.rows; i += 4) add_rows<4>(b, x, i);
    if (x.rows - i == 3) add_rows<3>(b, x, i);
    else if (x.rows - i == 2) add_rows<2>(b, x, i);
    else if (x.rows - i == 1) add_rows<1>(b, x, i);
  });
}

}  // namespace parx::detail::product::direct_256

#undef PARX_BF16_AVX2

#endif
