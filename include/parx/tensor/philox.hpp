// Philox4x32-10, a counter-based random number generator: block n is a function of (key, n), so
// that any part of a sequence can be computed anywhere without the parts before it.
//
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC11); Random123 has the
// known answers. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// What is counted: each counter has four numbers of its own.
using philox_counter = std::array<std::uint32_t, 4>;
/// The seed.
using philox_key = std::array<std::uint32_t, 2>;

namespace detail {

/// The blocks of `Blocks` consecutive counters; only the low 64 bits count up. An iteration has all
/// rounds of a block, so that a compiler keeps several blocks in vector registers from the first
/// round to the last.
template <std::size_t Blocks>
void philox_blocks(philox_counter first, philox_key key, std::uint32_t* words) noexcept {
  const std::uint64_t low = (std::uint64_t{first[1]} << 32) | first[0];
  for (std::size_t b = 0; b < Blocks; ++b) {
    auto x0 = static_cast<std::uint32_t>(low + b);
    auto x1 = static_cast<std::uint32_t>((low + b) >> 32);
    std::uint32_t x2 = first[2], x3 = first[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * x0;
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * x2;
      x0 = static_cast<std::uint32_t>(p1 >> 32) ^ x1 ^ k0;
      x2 = static_cast<std::uint32_t>(p0 >> 32) ^ x3 ^ k1;
      x1 = static_cast<std::uint32_t>(p1);
      x3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    words[4 * b] = x0;
    words[4 * b + 1] = x1;
    words[4 * b + 2] = x2;
    words[4 * b + 3] = x3;
  }
}

}  // namespace detail

/// One block: four words of 32 random bits.
[[nodiscard]] inline philox_counter philox4x32(philox_counter counter, philox_key key) noexcept {
  philox_counter block;
  detail::philox_blocks<1>(counter, key, block.data());
  return block;
}

}  // namespace parx
