// link_memory: the layout of the shared memory of a link inside a host.
//
// Index 0 is the connecting side and the pipe in which it sends.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include <parx/transport/detail/pipe_state.hpp>

namespace parx::inline PARX_ABI::detail {

/// The first page; the two rings follow.
struct link_memory {
  static constexpr std::size_t rings_at = 4096;
  /// Measured: with single copies (process_vm_readv) a ring of 256 KiB is best for messages of
  /// 64 KiB to 1 MiB, as a core's cache holds both rings. Without them large messages pass through
  /// the ring, too, and profit from larger pieces.
  static constexpr std::size_t small_ring = std::size_t{256} << 10;
  static constexpr std::size_t large_ring = std::size_t{512} << 10;

  struct side {
    alignas(cache_line) std::atomic<std::uint32_t> asleep{0};
    std::atomic<std::uint32_t> closed{0};
  };
  side sides[2];
  pipe_state pipes[2];
  std::uint64_t ring_bytes = 0;

  [[nodiscard]] static std::size_t bytes_for(std::size_t ring_bytes) noexcept {
    return rings_at + 2 * ring_bytes;
  }
  [[nodiscard]] static link_memory& at(std::byte* memory) noexcept {
    return *std::launder(reinterpret_cast<link_memory*>(memory));
  }
};
static_assert(sizeof(link_memory) <= link_memory::rings_at);

}  // namespace parx::detail
