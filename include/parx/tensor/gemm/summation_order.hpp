// summation_order: in which order a product of matrices adds its terms.
//
// Every element of c = finish(alpha a b + base) is computed as
//
//   s_b = fma(a[k1], b[k1], ... fma(a[k0 + 1], b[k0 + 1], fma(a[k0], b[k0], 0)))   for block b of k
//   c   = fma(alpha, s_last, ... fma(alpha, s_1, fma(alpha, s_0, base)))
//
// where block b has the terms from b * block_k on, block_k of them or what is left. The order
// depends on k alone. So a row of c has the same bits however many rows there are, and a column
// however many columns, whatever the layouts, the packing, the caches, the vector instructions and
// the compiler: a batch of 8 gives the bits of its rows alone, a layer cut by columns or by rows of
// its input those of the whole layer. What holds it:
//
// 1. The lanes of a vector are elements of c, never terms of one sum: there is no horizontal sum,
//    also not for a product with a single row.
// 2. block_k is a constant. Only what no bit depends on may follow the caches.
// 3. Edges go through the code of whole tiles, on padded copies.
// 4. A multiply-add is asked for by name (simd::fma). Without the instruction (baseline x86-64)
//    both operations round: then the bits are the same within that level, not across levels.
//
// A sum over blocks has at most block_k + k / block_k roundings one after the other, a single chain
// would have k.
#pragma once

#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Half a first-level cache of 32 KiB holds so many rows of a tile's columns; blocks of 384 and 512
/// are within 5 % of it in time, 128 loses up to 10 %, and the rounding error is least here.
inline constexpr std::size_t block_k = 256;

}  // namespace parx::detail::product
