// bf16_direct: sums of products of few rows, which use an element of b too seldom to pack it.
//
// Elements of b are rounded on their way into registers, as pairs of an even and an odd term, for
// both chains of bf16_order.hpp. Where a column's terms are adjacent, 16 columns by 32 terms are
// transposed there; where columns are, rows of b are read one after the other, which is what a
// processor foresees, and the chains are in the first-level cache meanwhile.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstddef>

#include <immintrin.h>

#include <parx/tensor/flush_denormals.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>
#include <parx/tensor/gemm/bf16_registers.hpp>

namespace parx::inline PARX_ABI::detail::product::direct {

/// Adds 32 terms of `Rows` rows to the sums of 16 columns.
template <std::size_t Rows>
[[PARX_BF16_VECTORS, gnu::always_inline]] inline void add_rows(const __m512i (&b)[16],
                                                               const float* a, std::size_t a_step,
                                                               float* sums,
                                                               std::size_t sums_step) noexcept {
  __m512 even[Rows] = {}, odd[Rows] = {};
#pragma GCC unroll 16
  for (std::size_t q = 0; q < 16; ++q) {
    const auto pairs = reinterpret_cast<registers::pairs>(b[q]);
    const auto first = reinterpret_cast<__m512>(pairs << 16);
    const auto second = reinterpret_cast<__m512>(pairs & -0x10000);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Rows; ++i) {
      const float* const pair = a + i * a_step + 2 * q;
      even[i] = _mm512_fmadd_ps(_mm512_set1_ps(pair[0]), first, even[i]);
      odd[i] = _mm512_fmadd_ps(_mm512_set1_ps(pair[1]), second, odd[i]);
    }
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < Rows; ++i) {
    float* const to = sums + i * sums_step;
    _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(even[i], odd[i])));
  }
}

template <typename T>
[[PARX_BF16_VECTORS, gnu::always_inline]] inline void add_square(
    const T* from, std::size_t down, std::size_t height, std::size_t width,
    const bf16_direct_sums& x, std::size_t j, std::size_t p) noexcept {
  __m512i b[16];
  registers::load_square<registers::form::neighbours>(from, down, 1, height, width, b);
  const float* a = x.a + p;
  float* sums = x.sums + j;
  std::size_t i = 0;
  for (; i + 4 <= x.rows; i += 4, a += 4 * x.a_step, sums += 4 * x.sums_step) {
    add_rows<4>(b, a, x.a_step, sums, x.sums_step);
  }
  if (x.rows - i == 3) add_rows<3>(b, a, x.a_step, sums, x.sums_step);
  else if (x.rows - i == 2) add_rows<2>(b, a, x.a_step, sums, x.sums_step);
  else if (x.rows - i == 1) add_rows<1>(b, a, x.a_step, sums, x.sums_step);
}

/// Columns whose terms are adjacent.
template <typename T>
[[PARX_BF16_VECTORS, gnu::noinline]] void add_squares(const T* b, const bf16_direct_sums& x) {
  const std::size_t down = x.b.down;
  for (std::size_t p = 0; p < x.terms; p += bf16_step) {
    const std::size_t width = std::min(x.terms - p, bf16_step);
    for (std::size_t j = 0; j < x.columns; j += 16) {
      const std::size_t height = std::min<std::size_t>(x.columns - j, 16);
      const T* const from = b + j * down + p;
      if (height == 16 && width == bf16_step) add_square(from, down, 16, bf16_step, x, j, p);
      else add_square(from, down, height, width, x, j, p);
    }
  }
}

/// Adds `terms` terms from p on, at most twice `Pairs`, to the chains of `Rows` rows.
template <std::size_t Rows, std::size_t Pairs, typename T>
[[PARX_BF16_VECTORS, gnu::always_inline]] inline void add_pairs(
    const T* b, const float* a, const bf16_direct_sums& x, std::size_t terms, bool is_first,
    float (&chains)[2][bf16_most_sums]) noexcept {
  const std::size_t right = x.b.right;
  for (std::size_t j = 0; j < x.columns; j += 16, b += 16) {
    const std::size_t left = x.columns - j;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFFU : (1U << left) - 1U);
    __m512 even[Rows] = {}, odd[Rows] = {};
    if (!is_first) {
#pragma GCC unroll 4
      for (std::size_t i = 0; i < Rows; ++i) {
        even[i] = _mm512_load_ps(chains[0] + i * x.sums_step + j);
        odd[i] = _mm512_load_ps(chains[1] + i * x.sums_step + j);
      }
    }
#pragma GCC unroll 4
    for (std::size_t q = 0; q < Pairs; ++q) {
      const T* const from = b + 2 * q * right;
      const bool is_pair = Pairs > 1 || terms > 1;
      __builtin_prefetch(from + 2 * Pairs * right);
      __builtin_prefetch(from + (2 * Pairs + 1) * right);
      const auto pairs = reinterpret_cast<registers::pairs>(registers::load_pairs(
          from, from + (is_pair ? right : 0), mask, is_pair ? mask : __mmask16{0}));
      const auto first = reinterpret_cast<__m512>(pairs << 16);
      const auto second = reinterpret_cast<__m512>(pairs & -0x10000);
#pragma GCC unroll 4
      for (std::size_t i = 0; i < Rows; ++i) {
        const float* const pair = a + i * x.a_step + 2 * q;
        even[i] = _mm512_fmadd_ps(_mm512_set1_ps(pair[0]), first, even[i]);
        odd[i] = _mm512_fmadd_ps(_mm512_set1_ps(pair[1]), second, odd[i]);
      }
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < Rows; ++i) {
      _mm512_store_ps(chains[0] + i * x.sums_step + j, even[i]);
      _mm512_store_ps(chains[1] + i * x.sums_step + j, odd[i]);
    }
  }
}

/// Columns that are adjacent, `Rows` rows from row on.
template <std::size_t Rows, typename T>
[[PARX_BF16_VECTORS, gnu::noinline]] void add_lines(const T* b, const bf16_direct_sums& x,
                                                    std::size_t row) {
  alignas(64) float chains[2][bf16_most_sums];
  float* const sums = x.sums + row * x.sums_step;
  for (std::size_t p = 0; p < x.terms; p += bf16_step) {
    const std::size_t terms = std::min(x.terms - p, bf16_step);
    std::size_t q = 0;
    const float* const a = x.a + row * x.a_step + p;
    const T* const from = b + p * x.b.right;
    for (; q + 8 <= terms; q += 8) {
      add_pairs<Rows, 4>(from + q * x.b.right, a + q, x, 8, q == 0, chains);
    }
    for (; q < terms; q += 2) {
      add_pairs<Rows, 1>(from + q * x.b.right, a + q, x, terms - q, q == 0, chains);
    }
    // The chains' padding makes a -0 to +0.
    const __m512 padding = _mm512_set1_ps(terms + 1 < bf16_step ? 0.0F : -0.0F);
    for (std::size_t j = 0; j < Rows * x.sums_step; j += 16) {
      const __m512 even = _mm512_add_ps(_mm512_load_ps(chains[0] + j), padding);
      const __m512 both = _mm512_add_ps(even, _mm512_load_ps(chains[1] + j));
      _mm512_store_ps(sums + j, _mm512_add_ps(_mm512_load_ps(sums + j), both));
    }
  }
}

template <typename T>
void add_terms(const T* b, const bf16_direct_sums& x) {
  if (x.b.right == 1) return add_squares(b, x);
  std::size_t i = 0;
  for (; i + 4 <= x.rows; i += 4) add_lines<4>(b, x, i);
  if (x.rows - i == 3) add_lines<3>(b, x, i);
  else if (x.rows - i == 2) add_lines<2>(b, x, i);
  else if (x.rows - i == 1) add_lines<1>(b, x, i);
}

inline void multiply(const bf16_direct_sums& x) {
  const flush_denormals scope;
  x.b.values.visit([&](const auto* b) { add_terms(b, x); });
}

}  // namespace parx::detail::product::direct

#endif
