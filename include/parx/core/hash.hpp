// fnv1a: a 64-bit hash of text that is equal on every host and in every version of parx.
#pragma once

#include <cstdint>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// FNV-1a: group ids from names, layout hashes. Not for what must resist an attacker.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text,
                                            std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

}  // namespace parx::detail
