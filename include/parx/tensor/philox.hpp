// Philox4x32-10, a counter-based random number generator: block n is a function of (key, n), so
// that any part of a sequence can be made anywhere without making what is before it.
//
// Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC11); Random123 has the
// known answers. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace parx {

using philox_counter = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

namespace detail {

/// The blocks of `Lanes` counters that differ in the low 64 bits by 0, 1, 2, ...; in `word`, block
/// b's word w is word[w][b], so that the rounds vectorise over the blocks.
template <std::size_t Lanes>
void philox_lanes(philox_counter first, philox_key key,
                  std::array<std::array<std::uint32_t, Lanes>, 4>& word) noexcept {
  const std::uint64_t low = (std::uint64_t{first[1]} << 32) | first[0];
  for (std::size_t b = 0; b < Lanes; ++b) {
    word[0][b] = static_cast<std::uint32_t>(low + b);
    word[1][b] = static_cast<std::uint32_t>((low + b) >> 32);
    word[2][b] = first[2];
    word[3][b] = first[3];
  }
  for (int round = 0; round < 10; ++round) {
    for (std::size_t b = 0; b < Lanes; ++b) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53} * word[0][b];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57} * word[2][b];
      word[0][b] = static_cast<std::uint32_t>(p1 >> 32) ^ word[1][b] ^ key[0];
      word[2][b] = static_cast<std::uint32_t>(p0 >> 32) ^ word[3][b] ^ key[1];
      word[1][b] = static_cast<std::uint32_t>(p1);
      word[3][b] = static_cast<std::uint32_t>(p0);
    }
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
}

}  // namespace detail

/// One block: four words of 32 random bits.
[[nodiscard]] inline philox_counter philox4x32(philox_counter counter, philox_key key) noexcept {
  std::array<std::array<std::uint32_t, 1>, 4> word;
  detail::philox_lanes<1>(counter, key, word);
  return {word[0][0], word[1][0], word[2][0], word[3][0]};
}

}  // namespace parx
