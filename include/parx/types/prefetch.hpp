// prefetch_row: prefetches a row of a table that is about to be updated. The rows of a batch lie at
// random addresses, which hardware prefetchers cannot predict.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Prefetches the first KiB for writing. Any address is allowed.
inline void prefetch_row(const void* row, std::size_t bytes) noexcept {
  constexpr std::size_t most_bytes = 1024, line = 64;
  for (std::size_t at = 0; at < std::min(bytes, most_bytes); at += line) {
    __builtin_prefetch(static_cast<const char*>(row) + at, 1);
  }
}

}  // namespace parx::detail
