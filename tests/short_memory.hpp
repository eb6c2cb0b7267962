// Lets every thread but those that say so run out of memory. For one file of a program: it replaces
// operator new, except under clang's sanitizers, which link their own into the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "sanitizers.hpp"

namespace parx_test {

inline std::atomic<bool> memory_is_short{false};
inline thread_local bool has_its_own = false;  ///< not short for this thread

}  // namespace parx_test

#if defined(__clang__) && \
    (defined(PARX_TEST_ADDRESS_SANITIZER) || defined(PARX_TEST_THREAD_SANITIZER))
namespace parx_test {
inline constexpr bool memory_can_be_short = false;
}
#else
namespace parx_test {
inline constexpr bool memory_can_be_short = true;
}

// noinline: once inlined, gcc takes malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (parx_test::memory_is_short && !parx_test::has_its_own) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (parx_test::memory_is_short && !parx_test::has_its_own) throw std::bad_alloc();
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* const memory = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) {
    return memory;
  }
  throw std::bad_alloc();
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
