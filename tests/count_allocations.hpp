// Counts the calls of operator new, of each thread and of all. For one file of a program: it
// replaces the operators. Not under a sanitizer, which replaces them itself: there a hook counts
// what it allocates, and that includes what malloc is asked for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "sanitizers.hpp"

namespace parx_test {

inline thread_local std::size_t allocations = 0;  ///< by this thread
inline std::atomic<std::size_t> allocations_of_all_threads{0};

inline void count_allocation() {
  ++allocations;
  allocations_of_all_threads.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace parx_test

#if defined(PARX_TEST_ADDRESS_SANITIZER) || defined(PARX_TEST_THREAD_SANITIZER)

#include <sanitizer/allocator_interface.h>

namespace parx_test {

inline const int allocation_hooks = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t) { count_allocation(); }, [](const volatile void*) {});

}  // namespace parx_test

#else

namespace parx_test {

inline void* counted(void* memory) {
  count_allocation();
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace parx_test

// noinline: once inlined, gcc takes malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  return parx_test::counted(std::malloc(bytes));
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  return parx_test::counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#endif
