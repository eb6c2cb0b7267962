// bf16_tile_amx: tiles of 32 x 32 sums in the tile registers of AMX.
//
// A step of 32 terms loads two tile registers of a and two of b, 1 KiB each, and does four
// tdpbf16ps of 16 cycles. A register of a is 16 rows of 32 terms, as they lie in a row-major
// matrix; one of b has pairs of terms side by side, for 16 columns. So operands whose rows are
// dense in the wrong direction are transposed, 16 x 16 pairs of terms in the vector registers.
//
// A thread loads its configuration of the tile registers before a task and releases it after it:
// registers in use cost 8 KiB of state at each switch of threads, and keep a core out of deep
// sleep.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <immintrin.h>

#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>

#define PARX_BF16_VECTORS gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")
#define PARX_BF16_TILES \
  gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

namespace parx::inline PARX_ABI::detail::product::amx {

/// 32 adjacent values, rounded.
[[PARX_BF16_VECTORS]] inline __m512i load_terms(const float* p) noexcept {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_loadu_ps(p + 16), _mm512_loadu_ps(p)));
}
[[PARX_BF16_VECTORS]] inline __m512i load_terms(const bfloat16* p) noexcept {
  return _mm512_loadu_si512(p);
}
// __builtin_shufflevector: g++ 12 warns of uninitialised values within the intrinsics' own code.
typedef std::int16_t words __attribute__((vector_size(64), may_alias));
typedef std::int32_t pairs __attribute__((vector_size(64), may_alias));
typedef std::int64_t quads __attribute__((vector_size(64), may_alias));

/// 16 adjacent values at p and 16 at `next`, side by side in pairs.
[[PARX_BF16_VECTORS]] inline __m512i in_pairs(__m512i both) noexcept {
  const auto x = reinterpret_cast<words>(both);
  return reinterpret_cast<__m512i>(
      __builtin_shufflevector(x, x, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24,
                              9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}
[[PARX_BF16_VECTORS]] inline __m512i load_pairs(const float* p, const float* next) noexcept {
  return in_pairs(
      reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_loadu_ps(next), _mm512_loadu_ps(p))));
}
[[PARX_BF16_VECTORS]] inline __m512i load_pairs(const bfloat16* p, const bfloat16* next) noexcept {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(next));
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

enum class side { a, b };

/// r = 16 rows (or columns) of 32 terms: for side::b, r[q] has terms 2 q and 2 q + 1 of each.
template <side Side, typename T>
[[PARX_BF16_VECTORS, gnu::always_inline]] inline void load_register(const T* from, std::size_t down,
                                                                    std::size_t right,
                                                                    __m512i (&r)[16]) noexcept {
  // What is read are many short runs, which the processor does not foresee.
  constexpr std::size_t ahead = 256 / sizeof(T);
  if (right == 1) {
#pragma GCC unroll 16
    for (std::size_t i = 0; i < 16; ++i) {
      __builtin_prefetch(from + i * down + ahead);
      r[i] = load_terms(from + i * down);
    }
  } else {
#pragma GCC unroll 16
    for (std::size_t p = 0; p < 16; ++p) {
      __builtin_prefetch(from + 2 * p * right + ahead);
      __builtin_prefetch(from + (2 * p + 1) * right + ahead);
      r[p] = load_pairs(from + 2 * p * right, from + (2 * p + 1) * right);
    }
  }
  if ((right == 1) == (Side == side::b)) transpose(r);
}

/// The part of a register that is in the operand: `height` rows of `width` terms; the others are 0.
template <typename T>
struct padded_square {
  alignas(64) T values[16 * bf16_step] = {};
  std::size_t down, right;

  padded_square(const T* from, std::size_t from_down, std::size_t from_right, std::size_t height,
                std::size_t width) noexcept
      : down(from_right == 1 ? bf16_step : 1), right(from_right == 1 ? 1 : 16) {
    if (from_right == 1) {
      for (std::size_t i = 0; i < height; ++i) {
        for (std::size_t q = 0; q < width; ++q) values[i * down + q] = from[i * from_down + q];
      }
    } else {
      for (std::size_t q = 0; q < width; ++q) {
        for (std::size_t i = 0; i < height; ++i) values[q * right + i] = from[q * from_right + i];
      }
    }
  }
};

template <side Side, typename T>
[[PARX_BF16_VECTORS]] void pack_register(const T* from, std::size_t down, std::size_t right,
                                         std::byte* to) noexcept {
  __m512i r[16];
  load_register<Side>(from, down, right, r);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < 16; ++i) _mm512_store_si512(to + 64 * i, r[i]);
}

/// Two registers for each 32 terms. What is outside of the operand is 0.
template <side Side>
void pack(bf16_operand from, std::size_t count, std::size_t terms, std::byte* to) {
  from.values.visit([&]<typename T>(const T* data) {
    for (std::size_t p = 0; p < terms; p += bf16_step) {
      const std::size_t width = std::min(terms - p, bf16_step);
      for (std::size_t i = 0; i < 32; i += 16, to += 1024) {
        const T* const first = data + i * from.down + p * from.right;
        const std::size_t height = i < count ? std::min<std::size_t>(count - i, 16) : 0;
        if (height == 16 && width == bf16_step) {
          pack_register<Side>(first, from.down, from.right, to);
        } else if (height == 0) {
          std::memset(to, 0, 1024);
        } else {
          const padded_square<T> square(first, from.down, from.right, height, width);
          pack_register<Side>(square.values, square.down, square.right, to);
        }
      }
    }
  });
}

// Registers 0 to 3 are the sums, 4 and 5 of a, 6 and 7 of b.
template <bool HasLowerRows, bool HasRightColumns>
[[PARX_BF16_TILES, gnu::always_inline]] inline void multiply_registers(std::size_t steps,
                                                                       const std::byte* a,
                                                                       const std::byte* b,
                                                                       float* sums) {
  _tile_zero(0);
  if constexpr (HasRightColumns) _tile_zero(1);
  if constexpr (HasLowerRows) _tile_zero(2);
  if constexpr (HasLowerRows && HasRightColumns) _tile_zero(3);
  for (std::size_t k = 0; k < steps; ++k, a += 2048, b += 2048) {
    _tile_loadd(4, a, 64);
    _tile_loadd(6, b, 64);
    if constexpr (HasRightColumns) _tile_loadd(7, b + 1024, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (HasRightColumns) _tile_dpbf16ps(1, 4, 7);
    if constexpr (HasLowerRows) _tile_loadd(5, a + 1024, 64);
    if constexpr (HasLowerRows) _tile_dpbf16ps(2, 5, 6);
    if constexpr (HasLowerRows && HasRightColumns) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums, 128);
  if constexpr (HasRightColumns) _tile_stored(1, sums + 16, 128);
  if constexpr (HasLowerRows) _tile_stored(2, sums + 512, 128);
  if constexpr (HasLowerRows && HasRightColumns) _tile_stored(3, sums + 528, 128);
}

[[PARX_BF16_TILES, gnu::noinline]] inline void multiply(std::size_t steps, const std::byte* a,
                                                        const std::byte* b, std::size_t rows,
                                                        std::size_t columns, float* sums) {
  __asm__ volatile("" ::: "memory");  // the packed operands are in memory
  if (rows <= 16) {
    if (columns <= 16) multiply_registers<false, false>(steps, a, b, sums);
    else multiply_registers<false, true>(steps, a, b, sums);
  } else {
    if (columns <= 16) multiply_registers<true, false>(steps, a, b, sums);
    else multiply_registers<true, true>(steps, a, b, sums);
  }
}

[[PARX_BF16_TILES]] inline void begin() {
  struct alignas(64) configuration {
    std::uint8_t palette = 1, start = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  static constexpr configuration whole;
  _tile_loadconfig(&whole);
}
[[PARX_BF16_TILES]] inline void end() { _tile_release(); }

}  // namespace parx::detail::product::amx

#endif
