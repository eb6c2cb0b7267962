// Definitions of wire.hpp.
#pragma once

#include <algorithm>

#include <parx/fsdp/wire.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE void narrow(const std::byte* from, std::byte* to, std::size_t count) noexcept {
  for (std::size_t at = 0; at < count; at += wire_piece) {
    convert_piece<float, bfloat16>(from + at * sizeof(float), to + at * sizeof(bfloat16),
                                   std::min(wire_piece, count - at));
  }
}

PARX_INLINE void widen(const std::byte* from, std::byte* to, std::size_t count) noexcept {
  while (count > 0) {
    const std::size_t size = (count - 1) % wire_piece + 1;
    count -= size;
    convert_piece<bfloat16, float>(from + count * sizeof(bfloat16), to + count * sizeof(float),
                                   size);
  }
}

PARX_INLINE void add_up_narrow(const std::byte* from, std::size_t blocks, std::byte* sum,
                               std::size_t count) noexcept {
  float added[wire_piece];
  bfloat16 next[wire_piece];
  for (std::size_t at = 0; at < count; at += wire_piece) {
    const std::size_t size = std::min(wire_piece, count - at);
    for (std::size_t block = 0; block < blocks; ++block) {
      std::memcpy(next, from + (block * count + at) * sizeof(bfloat16), size * sizeof(bfloat16));
      for (std::size_t i = 0; i < size; ++i) {
        const auto value = static_cast<float>(next[i]);
        added[i] = block == 0 ? value : added[i] + value;
      }
    }
    std::memcpy(sum + at * sizeof(float), added, size * sizeof(float));
  }
}

}  // namespace parx::detail
