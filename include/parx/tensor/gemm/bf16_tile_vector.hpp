// bf16_tile_vector: tiles whose sums are in vector registers, by multiply-add or by vdpbf16ps.
//
// The lanes are columns. Operands are packed in the order of their chains: of 32 terms the even
// ones, then the odd ones. vdpbf16ps(s, x, y) is fma(x0, y0, fma(x1, y1, s)), so with two
// neighbours of one chain as its pair, the earlier in the upper half, it goes along that chain.
// Each instruction set has a function of its own, made by a macro: a target is no template
// argument.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>

namespace parx::inline PARX_ABI::detail::product::vectors {

/// square[t][i] = the bits of term t of row i; 0 outside of the operand.
template <std::size_t Width, typename T>
void gather(const T* from, std::size_t down, std::size_t right, std::size_t count,
            std::size_t terms, std::uint16_t (&square)[bf16_step][Width]) {
  if (count < Width || terms < bf16_step) std::memset(square, 0, sizeof square);
  if (right == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t row[bf16_step];
      for (std::size_t t = 0; t < terms; ++t) row[t] = bits_of_operand(from[i * down + t]);
      for (std::size_t t = 0; t < terms; ++t) square[t][i] = row[t];
    }
  } else {
    for (std::size_t t = 0; t < terms; ++t) {
      for (std::size_t i = 0; i < count; ++i) square[t][i] = bits_of_operand(from[i + t * right]);
    }
  }
}

/// Floats, for each 32 terms [chain][term of the chain][row].
template <std::size_t Width>
void pack_floats(bf16_operand from, std::size_t count, std::size_t terms, std::byte* to) {
  from.values.visit([&](const auto* data) {
    std::uint16_t square[bf16_step][Width];
    auto* floats = reinterpret_cast<float*>(to);
    for (std::size_t p = 0; p < terms; p += bf16_step, floats += Width * bf16_step) {
      gather(data + p * from.right, from.down, from.right, count, std::min(bf16_step, terms - p),
             square);
      for (std::size_t t = 0; t < bf16_step; ++t) {
        float* const row = floats + (t % 2 * 16 + t / 2) * Width;
        for (std::size_t i = 0; i < Width; ++i) row[i] = operand_of_bits(square[t][i]);
      }
    }
  });
}

/// A tile of up to `row_count` rows by one vector or two, while denormals are flushed. The sums of
/// a block are in memory, as are those of the even terms while the odd ones are added: the
/// registers hold one chain of each sum. Of 3, 5 ... rows, one more is computed, of padding: the
/// code would be twice as much.
#define PARX_BF16_TILE(name, target, floats, element, operands, row_count, in_chain, multiply_add) \
  template <std::size_t Rows, std::size_t Vectors>                                                 \
  target void name##_rows(std::size_t steps, const std::byte* packed_a, const std::byte* packed_b, \
                          float* sums) {                                                           \
    const auto* a = reinterpret_cast<const element*>(packed_a);                                    \
    const auto* b = reinterpret_cast<const operands*>(packed_b);                                   \
    auto* const to = reinterpret_cast<floats*>(sums);                                              \
    for (std::size_t i = 0; i < 2 * Rows; ++i) to[i] = floats{};                                   \
    for (std::size_t k = 0; k < steps; ++k) {                                                      \
      floats even[Rows][Vectors];                                                                  \
      _Pragma("GCC unroll 2") for (int chain = 0; chain < 2; ++chain) {                            \
        floats sum[Rows][Vectors] = {};                                                            \
        _Pragma("GCC unroll 4") for (std::size_t t = 0; t < in_chain; ++t) {                       \
          operands x[Vectors];                                                                     \
          _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) x[j] = b[2 * t + j];   \
          _Pragma("GCC unroll 16") for (std::size_t i = 0; i < Rows; ++i) {                        \
            const auto y = a[t * row_count + i];                                                   \
            _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) {                    \
              sum[i][j] = multiply_add(y, x[j], sum[i][j]);                                        \
            }                                                                                      \
          }                                                                                        \
        }                                                                                          \
        a += in_chain * row_count;                                                                 \
        b += in_chain * 2;                                                                         \
        _Pragma("GCC unroll 16") for (std::size_t i = 0; i < Rows; ++i) {                          \
          _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) {                      \
            if (chain == 0) even[i][j] = sum[i][j];                                                \
            else to[2 * i + j] = to[2 * i + j] + (even[i][j] + sum[i][j]);                         \
          }                                                                                        \
        }                                                                                          \
      }                                                                                            \
    }                                                                                              \
  }                                                                                                \
  inline void name(std::size_t steps, const std::byte* a, const std::byte* b, std::size_t rows,    \
                   std::size_t columns, float* sums) {                                             \
    using function = void (*)(std::size_t, const std::byte*, const std::byte*, float*);            \
    static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {                \
      return std::array<function, row_count + 2>{                                                  \
          name##_rows<std::max<std::size_t>(I / 2 * 2, 1), I % 2 + 1>...};                         \
    }                                                                                              \
    (std::make_index_sequence<row_count + 2>());                                                   \
    const std::size_t pairs = rows == 1 ? 0 : (rows + 1) / 2;                                      \
    table[2 * pairs + (columns * sizeof(float) > sizeof(floats) ? 1 : 0)](steps, a, b, sums);      \
  }

typedef float floats_of_16 __attribute__((vector_size(16), may_alias));
#if defined(__x86_64__)
typedef float floats_of_32 __attribute__((vector_size(32), may_alias));
typedef float floats_of_64 __attribute__((vector_size(64), may_alias));
typedef int pairs_of_64 __attribute__((vector_size(64), may_alias));
#define PARX_BF16_FMA_512(y, x, sum)                                                             \
  reinterpret_cast<floats_of_64>(_mm512_fmadd_ps(_mm512_set1_ps(y), reinterpret_cast<__m512>(x), \
                                                 reinterpret_cast<__m512>(sum)))
#define PARX_BF16_FMA_256(y, x, sum)                                                             \
  reinterpret_cast<floats_of_32>(_mm256_fmadd_ps(_mm256_set1_ps(y), reinterpret_cast<__m256>(x), \
                                                 reinterpret_cast<__m256>(sum)))
#define PARX_BF16_DOT_512(y, x, sum)                                                       \
  reinterpret_cast<floats_of_64>(                                                          \
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),                                      \
                       reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(y))), \
                       reinterpret_cast<__m512bh>(x)))
PARX_BF16_TILE(multiply_512, [[gnu::target("avx512f")]], floats_of_64, float, floats_of_64, 12, 16,
               PARX_BF16_FMA_512)
PARX_BF16_TILE(multiply_256, [[gnu::target("avx2,fma")]], floats_of_32, float, floats_of_32, 6, 16,
               PARX_BF16_FMA_256)
PARX_BF16_TILE(multiply_dot, [[gnu::target("avx512f,avx512bf16")]], floats_of_64, std::uint32_t,
               pairs_of_64, 12, 8, PARX_BF16_DOT_512)
#undef PARX_BF16_FMA_512
#undef PARX_BF16_FMA_256
#undef PARX_BF16_DOT_512
#endif
// A product of two bfloat16 is a float unless it leaves float's range.
#if defined(__aarch64__)
#define PARX_BF16_FMA(y, x, sum) simd::fma(floats_of_16(y - floats_of_16{}), x, sum)
#else
#define PARX_BF16_FMA(y, x, sum) ((y) * (x) + (sum))
#endif
PARX_BF16_TILE(multiply_plain, , floats_of_16, float, floats_of_16, 6, 16, PARX_BF16_FMA)
#undef PARX_BF16_FMA
#undef PARX_BF16_TILE

#if defined(__x86_64__)
[[gnu::target("avx512f")]] inline void add_512(const bf16_addition& x) {
  const __m512 alpha = _mm512_set1_ps(x.alpha), factor = _mm512_set1_ps(x.base.factor);
  for (std::size_t j = 0; j < x.columns; j += 16) {
    const std::size_t left = x.columns - j;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFFU : (1U << left) - 1U);
    for (std::size_t i = 0; i < x.rows; ++i) {
      __m512 base = _mm512_setzero_ps();
      if (x.base.data != nullptr) {
        base = _mm512_maskz_loadu_ps(mask, x.base.data + i * x.base.step + j);
        base = _mm512_mul_ps(factor, base);
      }
      const __m512 sums = _mm512_load_ps(x.sums + i * x.sums_step + j);
      _mm512_mask_storeu_ps(x.c + i * x.ldc + j, mask, _mm512_fmadd_ps(alpha, sums, base));
    }
  }
}
[[gnu::target("avx2,fma")]] inline void add_256(const bf16_addition& x) {
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      const float sum = x.sums[i * x.sums_step + j];
      x.c[i * x.ldc + j] = __builtin_fmaf(x.alpha, sum, x.base.at(i, j));
    }
  }
}
#endif
inline void add_plain(const bf16_addition& x) {
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      const float sum = x.sums[i * x.sums_step + j], base = x.base.at(i, j);
      x.c[i * x.ldc + j] = x.alpha == 1 ? sum + base : std::fma(x.alpha, sum, base);
    }
  }
}

}  // namespace parx::detail::product::vectors
