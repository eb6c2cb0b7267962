// bf16_tile_vector: tiles whose sums are in vector registers, by multiply-add or by vdpbf16ps.
//
// The lanes are columns. Floats are packed in the order of their terms, of which a chain takes
// every second; pairs in the order of their chains. vdpbf16ps(s, x, y) is fma(x0, y0, fma(x1, y1,
// s)), so with two neighbours of one chain as its pair, the earlier in the upper half, it goes
// along that chain. Each instruction set has a function of its own, made by a macro: a target is no
// template argument.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
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
#include <parx/tensor/gemm/transposed_squares.hpp>
#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail::product::vectors {

using floats_of_register = simd::vector_of<float>;

/// As many values as a register has, rounded. `one` is 1, which the compiler must not know: times
/// that, while denormals are flushed, they are zeros, and a NaN is quiet.
[[nodiscard, gnu::always_inline]] inline floats_of_register rounded(
    const float* from, const floats_of_register& one) noexcept {
  floats_of_register x;
  std::memcpy(&x, from, sizeof x);
  x = x * one;
  const auto bits = std::bit_cast<simd::words>(x);
  const auto is_number = std::bit_cast<simd::words>(simd::mask_of(x == x));
  const simd::words nearest = bits + (((bits >> 16U & 1U) + 0x7FFFU) & is_number);
  return std::bit_cast<floats_of_register>(nearest & 0xFFFF0000U);
}
[[nodiscard, gnu::always_inline]] inline floats_of_register rounded(
    const bfloat16* from, const floats_of_register& /*one*/) noexcept {
  simd::vector_type<std::uint16_t, sizeof(simd::words) / 2>::type bits;
  std::memcpy(&bits, from, sizeof bits);
  return std::bit_cast<floats_of_register>(__builtin_convertvector(bits, simd::words) << 16U);
}

/// To be called while denormals are flushed: to = from, rounded, and 0 from `count` to `room`. With
/// `may_exceed` a whole register more of both may be touched.
template <typename T>
[[gnu::always_inline]] inline void round_row(const T* from, std::size_t count, std::size_t room,
                                             bool may_exceed, const floats_of_register& one,
                                             float* to) noexcept {
  constexpr std::size_t lanes = sizeof(floats_of_register) / sizeof(float);
  std::size_t i = 0;
  for (; i + lanes <= count || (may_exceed && i < count); i += lanes) {
    const floats_of_register values = rounded(from + i, one);
    std::memcpy(to + i, &values, sizeof values);
  }
  for (; i < count; ++i) to[i] = operand_of_bits(bits_of_operand(from[i]));
  for (i = count; i < room; ++i) to[i] = 0;
}

/// to[term][row] = rows[row][term]. May write a side of a square behind the end.
template <std::size_t Width>
void transpose(const float* rows, float* to) noexcept {
  constexpr std::size_t side = square_side<float>;
  // From the last square on: what it writes too much, those before it and later terms overwrite.
  for (std::size_t first = (Width - 1) / side * side + side; first > 0;) {
    first -= side;
    for (std::size_t t = 0; t < bf16_step; t += side) {
      square<float> columns;
      load_transposed(columns, [&](std::size_t i) __attribute__((always_inline)) {
        return rows + std::min(first + i, Width - 1) * bf16_step + t;
      });
#pragma GCC unroll 8
      for (std::size_t q = 0; q < side; ++q) store_side(to + (t + q) * Width + first, columns[q]);
    }
  }
}

/// Floats, [term][row].
template <std::size_t Width>
void pack_floats(bf16_operand from, std::size_t count, std::size_t terms, std::byte* to) {
  constexpr std::size_t lanes = sizeof(floats_of_register) / sizeof(float);
  constexpr std::size_t padded = (Width + lanes - 1) / lanes * lanes;
  floats_of_register one = floats_of_register{} + 1.0F;
  __asm__("" : "+m"(one));
  from.values.visit([&, one](const auto* data) {
    auto* floats = reinterpret_cast<float*>(to);
    for (std::size_t p = 0; p < terms; p += bf16_step, floats += Width * bf16_step) {
      const std::size_t width = std::min(bf16_step, terms - p);
      const auto* const first = data + p * from.right;
      if (from.right == 1) {
        alignas(64) float rows[Width * bf16_step];
        for (std::size_t i = 0; i < Width; ++i) {
          const std::size_t here = i < count ? width : 0;
          round_row(first + i * from.down, here, bf16_step, false, one, rows + i * bf16_step);
        }
        transpose<Width>(rows, floats);
        continue;
      }
      for (std::size_t t = 0; t < width; ++t) {
        // What exceeds the panel, the next term overwrites; in memory it is there, too.
        const bool may_exceed = count == Width && t + 1 < width && from.right >= 2 * Width &&
                                t * Width + padded <= bf16_step * Width;
        round_row(first + t * from.right, count, Width, may_exceed, one, floats + t * Width);
      }
      std::fill(floats + width * Width, floats + bf16_step * Width, 0.0F);
    }
  });
}

/// A tile of up to `row_count` rows by one vector or two, while denormals are flushed. The sums of
/// a block are in memory, as are those of the even terms while the odd ones are added: the
/// registers hold one chain of each sum. Of 3, 5 ... rows, one more is computed, of padding: the
/// code would be twice as much.
#define PARX_BF16_TILE(name, target, floats, element, operands, row_count, in_chain, term_of,     \
                       every_lane, multiply_add)                                                  \
  template <std::size_t Rows, std::size_t Vectors>                                                \
  target void name##_rows(std::size_t steps, const std::byte* packed_a, const std::byte* packed_b, \
                          float* sums) {                                                          \
    const auto* a = reinterpret_cast<const element*>(packed_a);                                   \
    const auto* b = reinterpret_cast<const operands*>(packed_b);                                  \
    auto* const to = reinterpret_cast<floats*>(sums);                                             \
    floats room[Rows * Vectors];                                                                  \
    floats* even = room;                                                                          \
    __asm__("" : "+r"(even)); /* memory: else g++ has no registers left for the odd chains */     \
    for (std::size_t k = 0; k < steps; ++k) {                                                     \
      _Pragma("GCC unroll 2") for (std::size_t chain = 0; chain < 2; ++chain) {                   \
        floats sum[Rows][Vectors] = {};                                                           \
        _Pragma("GCC unroll 1") for (std::size_t four = 0; four < in_chain; four += 4) {          \
          _Pragma("GCC unroll 4") for (std::size_t t = four; t < four + 4; ++t) {                 \
            const std::size_t term = term_of(chain, t);                                           \
            operands x[Vectors];                                                                  \
            _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) {                   \
              x[j] = b[2 * term + j];                                                             \
            }                                                                                     \
            _Pragma("GCC unroll 16") for (std::size_t i = 0; i < Rows; ++i) {                     \
              const auto y = every_lane(a[term * row_count + i]);                                 \
              _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) {                 \
                multiply_add(sum[i][j], y, x[j]);                                                 \
              }                                                                                   \
            }                                                                                     \
          }                                                                                       \
        }                                                                                         \
        _Pragma("GCC unroll 16") for (std::size_t i = 0; i < Rows; ++i) {                         \
          _Pragma("GCC unroll 2") for (std::size_t j = 0; j < Vectors; ++j) {                     \
            if (chain == 0) even[i * Vectors + j] = sum[i][j];                                    \
            else to[2 * i + j] = to[2 * i + j] + (even[i * Vectors + j] + sum[i][j]);             \
          }                                                                                       \
        }                                                                                         \
      }                                                                                           \
      a += 2 * in_chain * row_count;                                                              \
      b += 2 * in_chain * 2;                                                                      \
    }                                                                                             \
  }                                                                                               \
  inline void name(std::size_t steps, const std::byte* a, const std::byte* b, std::size_t rows,   \
                   std::size_t columns, float* sums) {                                            \
    using function = void (*)(std::size_t, const std::byte*, const std::byte*, float*);           \
    static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {               \
      return std::array<function, row_count + 2>{                                                 \
          name##_rows<std::max<std::size_t>(I / 2 * 2, 1), I % 2 + 1>...};                        \
    }                                                                                             \
    (std::make_index_sequence<row_count + 2>());                                                  \
    const std::size_t pairs = rows == 1 ? 0 : (rows + 1) / 2;                                     \
    table[2 * pairs + (columns * sizeof(float) > sizeof(floats) ? 1 : 0)](steps, a, b, sums);     \
  }

// Where operand t of a chain is among those of 32 terms.
#define PARX_BF16_TERM(chain, t) (2 * (t) + (chain))
#define PARX_BF16_PAIR(chain, t) (8 * (chain) + (t))

typedef float floats_of_16 __attribute__((vector_size(16), may_alias));
#if defined(__x86_64__)
typedef float floats_of_32 __attribute__((vector_size(32), may_alias));
typedef float floats_of_64 __attribute__((vector_size(64), may_alias));
typedef int pairs_of_64 __attribute__((vector_size(64), may_alias));
#define PARX_BF16_FMA_512(sum, y, x)                                                        \
  sum = reinterpret_cast<floats_of_64>(_mm512_fmadd_ps(y, reinterpret_cast<__m512>(x),      \
                                                       reinterpret_cast<__m512>(sum)))
#define PARX_BF16_DOT_512(sum, y, x)                                                        \
  sum = reinterpret_cast<floats_of_64>(                                                     \
      _mm512_dpbf16_ps(reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(y),        \
                       reinterpret_cast<__m512bh>(x)))
#define PARX_BF16_EVERY_PAIR(y) _mm512_set1_epi32(static_cast<int>(y))
// With 12 sums in 16 registers g++ 12 moves them about in memory unless each stays in its own.
#define PARX_BF16_FMA_256(sum, y, x) __asm__("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(y), "x"(x))
PARX_BF16_TILE(multiply_512, [[gnu::target("avx512f")]], floats_of_64, float, floats_of_64, 12, 16,
               PARX_BF16_TERM, _mm512_set1_ps, PARX_BF16_FMA_512)
PARX_BF16_TILE(multiply_256, [[gnu::target("avx2,fma")]], floats_of_32, float, floats_of_32, 6, 16,
               PARX_BF16_TERM, _mm256_set1_ps, PARX_BF16_FMA_256)
PARX_BF16_TILE(multiply_dot, [[gnu::target("avx512f,avx512bf16")]], floats_of_64, std::uint32_t,
               pairs_of_64, 12, 8, PARX_BF16_PAIR, PARX_BF16_EVERY_PAIR, PARX_BF16_DOT_512)
#undef PARX_BF16_FMA_512
#undef PARX_BF16_FMA_256
#undef PARX_BF16_EVERY_PAIR
#undef PARX_BF16_DOT_512
#endif
// A product of two bfloat16 is a float unless it leaves float's range.
#if defined(__aarch64__)
#define PARX_BF16_FMA(sum, y, x) sum = simd::fma(y, x, sum)
#else
#define PARX_BF16_FMA(sum, y, x) sum = y * x + sum
#endif
#define PARX_BF16_EVERY_LANE(y) (floats_of_16{} + (y))
PARX_BF16_TILE(multiply_plain, , floats_of_16, float, floats_of_16, 6, 16, PARX_BF16_TERM,
               PARX_BF16_EVERY_LANE, PARX_BF16_FMA)
#undef PARX_BF16_FMA
#undef PARX_BF16_EVERY_LANE
#undef PARX_BF16_TERM
#undef PARX_BF16_PAIR
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
  const __m256 alpha = _mm256_set1_ps(x.alpha), factor = _mm256_set1_ps(x.base.factor);
  for (std::size_t i = 0; i < x.rows; ++i) {
    std::size_t j = 0;
    for (; j + 8 <= x.columns; j += 8) {
      __m256 base = _mm256_setzero_ps();
      if (x.base.data != nullptr) {
        base = _mm256_mul_ps(factor, _mm256_loadu_ps(x.base.data + i * x.base.step + j));
      }
      const __m256 sums = _mm256_load_ps(x.sums + i * x.sums_step + j);
      _mm256_storeu_ps(x.c + i * x.ldc + j, _mm256_fmadd_ps(alpha, sums, base));
    }
    for (; j < x.columns; ++j) {
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
