// The rule by which parx cuts a number of elements into chunks, wherever ranks divide something.
#pragma once

#include <cstddef>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The first element of chunk `index` of `chunks` when `count` elements are cut as evenly as
/// possible: the first chunks have one more. chunk_begin(count, chunks, chunks) == count.
[[nodiscard]] constexpr std::size_t chunk_begin(std::size_t count, int chunks, int index) noexcept {
  const auto n = static_cast<std::size_t>(chunks);
  const auto i = static_cast<std::size_t>(index);
  const std::size_t base = count / n;
  const std::size_t rest = count % n;
  return i * base + (i < rest ? i : rest);
}

}  // namespace parx
