// heap_block: memory of the heap, of huge pages where a block is large and the system grants them
// (madvise): what is read all over misses the TLB at nearly each of its small pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::size_t huge_page = std::size_t{2} << 20;

/// Of a block of `size` bytes: a cache line, or a huge page.
[[nodiscard]] inline std::align_val_t block_alignment(std::size_t size) noexcept {
  return std::align_val_t{size < huge_page ? 64 : huge_page};
}

/// A block of `size` bytes, for ::operator delete(block, block_alignment(size)). The whole huge
/// pages in its first `bytes` are asked for. Throws std::bad_alloc.
[[nodiscard]] inline void* heap_block(std::size_t size, [[maybe_unused]] std::size_t bytes) {
  void* const block = ::operator new(size, block_alignment(size));
#ifdef MADV_HUGEPAGE
  if (bytes >= huge_page) ::madvise(block, bytes / huge_page * huge_page, MADV_HUGEPAGE);
#endif
  return block;
}

}  // namespace parx::detail
