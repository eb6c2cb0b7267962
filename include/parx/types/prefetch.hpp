// prefetch_row: asks for a row of a table ahead of its update. Rows that are picked lie anywhere:
// no processor guesses where the next one is.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// The first KiB, into this core's cache and to be written. Any address will do.
inline void prefetch_row(const void* row, std::size_t bytes) noexcept {
  constexpr std::size_t most_bytes = 1024, line = 64;
  for (std::size_t at = 0; at < std::min(bytes, most_bytes); at += line) {
    __builtin_prefetch(static_cast<const char*>(row) + at, 1);
  }
}

}  // namespace parx::detail
