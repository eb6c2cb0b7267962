// memory_pool: the allocator of tensors and graph nodes.
//
// Blocks are 64-byte aligned and come in size classes (four per power of two, so at most a quarter
// is wasted). A freed block is kept on its class's list and reused, last in first out: after one
// training step every step finds its blocks there, warm in the cache, and no longer calls the heap.
// The pool lives as long as the process, so that tensors in static variables may outlive
// everything. Safe from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <new>

#include <parx/core/abi.hpp>
#include <parx/core/heap_block.hpp>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PARX_POOL_POISONS 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define PARX_POOL_POISONS 1
#endif
#ifdef PARX_POOL_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace parx::inline PARX_ABI {

/// What the pool of this process has.
struct memory_stats {
  std::size_t live_bytes = 0;            ///< in blocks that are in use
  std::size_t peak_bytes = 0;            ///< largest live_bytes since the start or reset_peak()
  std::size_t pooled_bytes = 0;          ///< in free blocks, kept for reuse
  std::uint64_t system_allocations = 0;  ///< blocks that came from the heap
};

/// No memory for a block, although all free ones were returned to the heap.
class out_of_memory : public std::bad_alloc {
 public:
  out_of_memory(std::size_t wanted, std::size_t live) noexcept {
    const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::snprintf(text_.data(), text_.size(),
                  "out of memory: no room for %.1f MiB more; tensors hold %.1f MiB. Take smaller "
                  "batches, shorter sequences or a smaller model",
                  mib(wanted), mib(live));
  }
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }

 private:
  std::array<char, 192> text_{};  // not a string: there is no memory
};

class memory_pool {
 public:
  static constexpr std::size_t alignment = 64;

  [[nodiscard]] static memory_pool& instance() {
    static memory_pool& the_pool = *new memory_pool;  // never destroyed: see above
    return the_pool;
  }

  /// A block of at least `bytes`, uninitialised. Throws out_of_memory.
  [[nodiscard]] void* allocate(std::size_t bytes) {
    if (bytes > std::size_t{1} << 60U) throw out_of_memory(bytes, stats().live_bytes);
    const std::size_t index = class_of(bytes);
    const std::size_t size = class_bytes(index);
    {
      const std::lock_guard lock(mutex_);
      if (free_block* block = free_[index]; block != nullptr) {
        unpoison(block, size);
        free_[index] = block->next;
        stats_.pooled_bytes -= size;
        count_live(size);
        return block;
      }
    }
    void* const fresh = from_heap(size, bytes);
    const std::lock_guard lock(mutex_);
    ++stats_.system_allocations;
    count_live(size);
    return fresh;
  }

  /// Takes back a block that allocate(bytes) returned.
  void deallocate(void* memory, std::size_t bytes) noexcept {
    const std::size_t index = class_of(bytes);
    const std::size_t size = class_bytes(index);
    const std::lock_guard lock(mutex_);
    stats_.live_bytes -= size;
    stats_.pooled_bytes += size;
    free_[index] = ::new (memory) free_block{free_[index]};
    poison(memory, size);
  }

  /// Returns all free blocks to the heap.
  void trim() noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t index = 0; index < classes; ++index) {
      while (free_block* block = free_[index]) {
        unpoison(block, class_bytes(index));
        free_[index] = block->next;
        ::operator delete (block, detail::block_alignment(class_bytes(index)));
      }
    }
    stats_.pooled_bytes = 0;
  }

  [[nodiscard]] memory_stats stats() const {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }

 private:
  struct free_block {
    free_block* next;
  };
  static constexpr std::size_t classes = 4 * 58;

  // Class 4 e + q holds blocks of (4 + q) << (e + 4) bytes: 64, 80, 96, 112, 128, 160, ... rounded
  // up to whole cache lines.
  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept {
    const std::size_t units = std::max<std::size_t>((bytes + 15) / 16, 4);
    const auto exponent = static_cast<std::size_t>(std::bit_width(units)) - 3;
    const std::size_t step = (units + (std::size_t{1} << exponent) - 1) >> exponent;
    return 4 * exponent + step - 4;
  }
  [[nodiscard]] static std::size_t class_bytes(std::size_t index) noexcept {
    const std::size_t bytes = (4 + index % 4) << (index / 4 + 4);
    return (bytes + alignment - 1) / alignment * alignment;
  }
  /// Huge pages for `bytes` of it alone: a storage's header and 4 MiB must not take three.
  [[nodiscard]] void* from_heap(std::size_t size, std::size_t bytes) {
    try {
      return detail::heap_block(size, bytes);
    } catch (const std::bad_alloc&) {
      trim();
    }
    try {
      return detail::heap_block(size, bytes);
    } catch (const std::bad_alloc&) {
      throw out_of_memory(size, stats().live_bytes);
    }
  }
  void count_live(std::size_t size) noexcept {
    stats_.live_bytes += size;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  }

  // So that AddressSanitizer finds a use after free although blocks are reused. The link stays
  // readable, or the leak checker would not see the blocks behind it.
  static void poison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef PARX_POOL_POISONS
    ASAN_POISON_MEMORY_REGION(static_cast<std::byte*>(memory) + sizeof(free_block),
                              bytes - sizeof(free_block));
#endif
  }
  static void unpoison([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef PARX_POOL_POISONS
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
#endif
  }

  mutable std::mutex mutex_;
  std::array<free_block*, classes> free_{};
  memory_stats stats_;
};

/// A standard allocator over the pool, for the containers of graph nodes.
template <typename T>
struct pool_allocator {
  using value_type = T;
  pool_allocator() noexcept = default;
  template <typename U>
  pool_allocator(const pool_allocator<U>& /*other*/) noexcept {}
  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(memory_pool::instance().allocate(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    memory_pool::instance().deallocate(memory, count * sizeof(T));
  }
  friend bool operator==(const pool_allocator& /*a*/, const pool_allocator& /*b*/) noexcept {
    return true;
  }
};

}  // namespace parx
