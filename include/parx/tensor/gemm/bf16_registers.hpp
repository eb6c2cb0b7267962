// bf16_registers: 16 rows of 32 terms of an operand in 16 vector registers, rounded on the way.
//
// A register is a row, or a pair of terms of 16 rows. What is asked for in the layout that memory
// does not have is transposed, 16 x 16 pairs in the registers. What is outside of the operand is 0.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <immintrin.h>

#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>

#define PARX_BF16_VECTORS gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

namespace parx::inline PARX_ABI::detail::product::registers {

// __builtin_shufflevector: g++ 12 warns of uninitialised values within the intrinsics' own code.
typedef std::int16_t words __attribute__((vector_size(64), may_alias));
typedef std::int32_t pairs __attribute__((vector_size(64), may_alias));
typedef std::int64_t quads __attribute__((vector_size(64), may_alias));

/// The lowest `count` of a mask's bits.
template <typename Mask>
[[gnu::always_inline]] constexpr Mask first_of(std::size_t count) noexcept {
  constexpr std::size_t bits = 8 * sizeof(Mask);
  return static_cast<Mask>(count >= bits ? ~0ULL : (1ULL << count) - 1);
}

/// Those of 32 adjacent values that are in the mask, rounded.
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i load_terms(const float* p,
                                                                    __mmask32 terms) noexcept {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(static_cast<__mmask16>(terms >> 16U), p + 16),
                          _mm512_maskz_loadu_ps(static_cast<__mmask16>(terms), p)));
}
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i load_terms(const bfloat16* p,
                                                                    __mmask32 terms) noexcept {
  return _mm512_maskz_loadu_epi16(terms, p);
}

/// 16 adjacent values at p and 16 at `next`, side by side in pairs.
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i in_pairs(__m512i both) noexcept {
  const auto x = reinterpret_cast<words>(both);
  return reinterpret_cast<__m512i>(
      __builtin_shufflevector(x, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                              9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i load_pairs(const float* p,
                                                                    const float* next,
                                                                    __mmask16 first,
                                                                    __mmask16 second) noexcept {
  return in_pairs(reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(second, next), _mm512_maskz_loadu_ps(first, p))));
}
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i load_pairs(const bfloat16* p,
                                                                    const bfloat16* next,
                                                                    __mmask16 first,
                                                                    __mmask16 second) noexcept {
  const __m256i low = _mm256_maskz_loadu_epi16(first, p);
  const __m256i high = _mm256_maskz_loadu_epi16(second, next);
  return in_pairs(
      reinterpret_cast<__m512i>(__builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7)));
}

#define PARX_BF16_SHUFFLE(name, type, ...)                                   \
  [[PARX_BF16_VECTORS]] inline __m512i name(__m512i a, __m512i b) noexcept { \
    return reinterpret_cast<__m512i>(__builtin_shufflevector(                \
        reinterpret_cast<type>(a), reinterpret_cast<type>(b), __VA_ARGS__)); \
  }
PARX_BF16_SHUFFLE(low_pairs, pairs, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
PARX_BF16_SHUFFLE(high_pairs, pairs, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
PARX_BF16_SHUFFLE(low_quads, quads, 0, 8, 2, 10, 4, 12, 6, 14)
PARX_BF16_SHUFFLE(high_quads, quads, 1, 9, 3, 11, 5, 13, 7, 15)
PARX_BF16_SHUFFLE(even_quarters, quads, 0, 1, 4, 5, 8, 9, 12, 13)
PARX_BF16_SHUFFLE(odd_quarters, quads, 2, 3, 6, 7, 10, 11, 14, 15)
#undef PARX_BF16_SHUFFLE

/// 16 x 16 pairs.
[[PARX_BF16_VECTORS]] inline void transpose(__m512i (&r)[16]) noexcept {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = low_pairs(r[i], r[i + 1]);
    t[i + 1] = high_pairs(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = low_quads(t[i], t[i + 2]);
    r[i + 1] = high_quads(t[i], t[i + 2]);
    r[i + 2] = low_quads(t[i + 1], t[i + 3]);
    r[i + 3] = high_quads(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = even_quarters(r[i], r[4 + i]);
    t[4 + i] = odd_quarters(r[i], r[4 + i]);
    t[8 + i] = even_quarters(r[8 + i], r[12 + i]);
    t[12 + i] = odd_quarters(r[8 + i], r[12 + i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = even_quarters(t[i], t[8 + i]);
    r[8 + i] = odd_quarters(t[i], t[8 + i]);
    r[4 + i] = even_quarters(t[4 + i], t[12 + i]);
    r[12 + i] = odd_quarters(t[4 + i], t[12 + i]);
  }
}

/// What a register is.
enum class form {
  rows,        ///< one of the 16 rows
  neighbours,  ///< terms 2 q and 2 q + 1 of each row
  chains       ///< neighbours of a chain, the later one first: 2, 0; 6, 4 ... and 3, 1; 7, 5 ...
};

/// The terms of pair q, the lower half first.
template <form Form>
constexpr std::size_t term_of(std::size_t q, std::size_t half) noexcept {
  return Form == form::chains ? q / 8 + q % 8 * 4 + 2 - 2 * half : 2 * q + half;
}
[[PARX_BF16_VECTORS, gnu::always_inline]] inline __m512i in_chains(__m512i row) noexcept {
  const auto x = reinterpret_cast<words>(row);
  return reinterpret_cast<__m512i>(
      __builtin_shufflevector(x, x, 2, 0, 6, 4, 10, 8, 14, 12, 18, 16, 22, 20, 26, 24, 30, 28, 3, 1,
                              7, 5, 11, 9, 15, 13, 19, 17, 23, 21, 27, 25, 31, 29));
}

/// `height` rows of `width` terms, at most 16 and 32, at least 1.
template <form Form, typename T>
[[PARX_BF16_VECTORS, gnu::always_inline]] inline void load_square(const T* from, std::size_t down,
                                                                  std::size_t right,
                                                                  std::size_t height,
                                                                  std::size_t width,
                                                                  __m512i (&r)[16]) noexcept {
  // What is read are many short runs, which the processor does not foresee.
  constexpr std::size_t ahead = 256 / sizeof(T);
  if (right == 1) {
    const auto terms = first_of<__mmask32>(width);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      const T* const row = from + (i < height ? i : 0) * down;
      __builtin_prefetch(row + ahead);
      r[i] = load_terms(row, i < height ? terms : 0);
      if constexpr (Form == form::chains) r[i] = in_chains(r[i]);
    }
  } else {
    const auto rows = first_of<__mmask16>(height);
    const auto mask = [&](std::size_t term) { return term < width ? rows : __mmask16{0}; };
    const auto at = [&](std::size_t term) { return from + (term < width ? term : 0) * right; };
#pragma GCC unroll 16
    for (std::size_t q = 0; q < 16; ++q) {
      const std::size_t first = term_of<Form>(q, 0), second = term_of<Form>(q, 1);
      __builtin_prefetch(at(first) + ahead);
      __builtin_prefetch(at(second) + ahead);
      r[q] = load_pairs(at(first), at(second), mask(first), mask(second));
    }
  }
  if ((right == 1) == (Form != form::rows)) transpose(r);
}

/// The registers of Rows rows for each 32 terms: 16 rows after the other, or, of chains, pair after
/// pair of all rows.
template <form Form, std::size_t Rows, typename T>
[[PARX_BF16_VECTORS, gnu::noinline]] void pack_values(const T* from, std::size_t down,
                                                      std::size_t right, std::size_t count,
                                                      std::size_t terms, std::byte* to) {
  constexpr std::size_t step = Form == form::chains ? Rows * 4 : 64;
  constexpr std::size_t most = std::min<std::size_t>(Rows, 16);
  for (std::size_t p = 0; p < terms; p += bf16_step, to += Rows * 64) {
    const std::size_t width = std::min(terms - p, bf16_step);
#pragma GCC unroll 1
    for (std::size_t i = 0; i < Rows; i += 16) {
      const T* const first = from + i * down + p * right;
      const std::size_t height = i < count ? std::min(count - i, most) : 0;
      __m512i r[16] = {};
      if (height == most && width == bf16_step) {
        load_square<Form>(first, down, right, most, bf16_step, r);
      } else if (height > 0) {
        load_square<Form>(first, down, right, height, width, r);
      }
      std::byte* const at = to + i * (Form == form::chains ? 4 : 64);
      const auto lanes = first_of<__mmask16>(Rows - i);
#pragma GCC unroll 16
      for (std::size_t q = 0; q < 16; ++q) _mm512_mask_storeu_epi32(at + q * step, lanes, r[q]);
    }
  }
}
template <form Form, std::size_t Rows>
void pack(bf16_operand from, std::size_t count, std::size_t terms, std::byte* to) {
  from.values.visit([&](const auto* values) {
    pack_values<Form, Rows>(values, from.down, from.right, count, terms, to);
  });
}

}  // namespace parx::detail::product::registers

#endif
