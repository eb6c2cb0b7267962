// Philox 4x32-10: random numbers as a pure function of (key, counter).
//
// Nothing has a state, so any rank, thread or resumed run can compute the numbers of any element in
// any order and gets the same ones on every platform. All randomness in parx goes through here.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace parx {

using philox_block = std::array<std::uint32_t, 4>;

/// The four random words at `counter` (128 bits, lowest word first) in the stream `key`.
[[nodiscard]] constexpr philox_block philox(std::uint64_t key, philox_block counter) noexcept {
  auto key_low = static_cast<std::uint32_t>(key);
  auto key_high = static_cast<std::uint32_t>(key >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product_0 = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t product_1 = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(product_1 >> 32U) ^ counter[1] ^ key_low,
               static_cast<std::uint32_t>(product_1),
               static_cast<std::uint32_t>(product_0 >> 32U) ^ counter[3] ^ key_high,
               static_cast<std::uint32_t>(product_0)};
    key_low += 0x9E3779B9;
    key_high += 0xBB67AE85;
  }
  return counter;
}

/// The block at (index, substream): two 64-bit coordinates instead of four words.
[[nodiscard]] constexpr philox_block philox(std::uint64_t key, std::uint64_t index,
                                            std::uint64_t substream = 0) noexcept {
  return philox(
      key, philox_block{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32U),
                        static_cast<std::uint32_t>(substream),
                        static_cast<std::uint32_t>(substream >> 32U)});
}

/// A random word as a float in [0, 1): its upper 24 bits, so that every value is exact.
[[nodiscard]] constexpr float to_unit(std::uint32_t word) noexcept {
  return static_cast<float>(word >> 8U) * 0x1p-24F;
}

/// A 64-bit key from a seed and a name (a parameter's path, an operation): FNV-1a over the name,
/// then mixed with the seed by Philox itself, so that near seeds give unrelated streams.
[[nodiscard]] constexpr std::uint64_t philox_key(std::uint64_t seed,
                                                 std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char character : name) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001B3;
  }
  const philox_block mixed = philox(seed, hash);
  return std::uint64_t{mixed[1]} << 32U | mixed[0];
}

}  // namespace parx
