// bf16_order: in which order a product of bfloat16 adds its terms.
//
// Every element of c = finish(alpha a b + base), the operands rounded to bfloat16, is computed as
//
//   the terms are cut into blocks of 512, and a block is padded with +0 to a multiple of 32
//   for each block     s = +0
//     for each 32 terms t0 ... t31 of it
//       e = fma(a30, b30, ... fma(a2, b2, fma(a0, b0, +0)))     the even terms
//       o = fma(a31, b31, ... fma(a3, b3, fma(a1, b1, +0)))     the odd terms
//       s = s + (e + o)
//     c = fma(alpha, s, c)                                      beginning with base
//
// e, o and s are floats, rounded to nearest after each operation; denormals, of operands and of
// results, are zeros of their sign. That is what AMX's tdpbf16ps computes, whatever MXCSR says, and
// what any multiply-add computes with FTZ and DAZ set. So AMX, AVX512_BF16, AVX-512 and AVX2 give
// the same bits. As those of summation_order.hpp they depend on k alone, besides the values: not on
// the sizes, the layouts, the caches, or the threads.
//
// Rounding of an operand is to nearest, ties to even; a denormal float becomes a zero of its sign,
// a NaN stays one (vcvtneps2bf16). Not promised: which NaN a sum is. Processors without
// multiply-add (x86-64 before AVX2) round a product by itself: the bits are the same while products
// of two terms are within 2^-126 and 2^128, since they are exact floats then.
// Intel: Architecture Instruction Set Extensions Programming Reference (319433), TDPBF16PS.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <parx/tensor/flush_denormals.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail::product {

inline constexpr std::size_t bf16_block = 512;  ///< terms whose sum s is added to c
inline constexpr std::size_t bf16_step = 32;    ///< terms of a pair of chains

/// The operand of a float's bits, in the lower half; of plain numbers and of vectors.
template <typename Bits>
[[nodiscard, gnu::always_inline]] constexpr Bits rounded_operand(Bits bits) noexcept {
  const Bits magnitude = bits & 0x7FFFFFFFU;
  const Bits nearest = bits + 0x7FFFU + (bits >> 16U & 1U);
  const auto is_nan = std::bit_cast<Bits>(simd::mask_of(magnitude > 0x7F800000U));
  const auto is_denormal = std::bit_cast<Bits>(simd::mask_of(magnitude < 0x00800000U));
  const Bits finite = simd::select<Bits>(is_denormal, bits & 0x80000000U, nearest);
  return simd::select<Bits>(is_nan, bits | 0x00400000U, finite) >> 16U;
}
[[nodiscard, gnu::always_inline]] constexpr std::uint16_t bits_of_operand(float value) noexcept {
  return static_cast<std::uint16_t>(rounded_operand(std::bit_cast<std::uint32_t>(value)));
}
[[nodiscard, gnu::always_inline]] constexpr std::uint16_t bits_of_operand(bfloat16 value) noexcept {
  return value.bits;
}
[[nodiscard, gnu::always_inline]] constexpr float operand_of_bits(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// The stated order itself, for one element: a is a row of `k` terms, b a column. Slow.
template <typename A, typename B>
[[nodiscard]] float in_bf16_order(matrix<A> a, matrix<B> b, std::size_t k, float alpha,
                                  float base) {
  for (std::size_t k0 = 0; k0 == 0 || k0 < k; k0 += bf16_block) {
    volatile float sum = 0;  // volatile: computed while denormals are flushed
    {
      const flush_denormals scope;
      const std::size_t end = std::min(k, k0 + bf16_block);
      for (std::size_t step = k0; step < end; step += bf16_step) {
        volatile float chain[2] = {0, 0};
        for (std::size_t p = step; p < step + bf16_step; ++p) {
          const float x = p < end ? operand_of_bits(bits_of_operand(*a.at(0, p))) : 0.0F;
          const float y = p < end ? operand_of_bits(bits_of_operand(*b.at(p, 0))) : 0.0F;
          chain[p % 2] = std::fma(x, y, chain[p % 2]);
        }
        const volatile float both = chain[0] + chain[1];
        sum = sum + both;
      }
    }
    base = std::fma(alpha, sum, base);
  }
  return base;
}

}  // namespace parx::detail::product
