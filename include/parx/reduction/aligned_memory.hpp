// aligned_memory: bytes that begin at a cache line, so that kernels on them run at full speed.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

struct aligned_delete {
  static constexpr std::align_val_t alignment{64};
  void operator()(std::byte* memory) const noexcept { ::operator delete(memory, alignment); }
};
using aligned_memory = std::unique_ptr<std::byte, aligned_delete>;

/// Not initialized.
[[nodiscard]] inline aligned_memory allocate_aligned(std::size_t bytes) {
  return aligned_memory(static_cast<std::byte*>(::operator new(bytes, aligned_delete::alignment)));
}

}  // namespace parx
