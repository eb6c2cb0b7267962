// Lets every thread but those that say so run out of memory. For one file of a program: it replaces
// operator new.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace parx_test {

inline std::atomic<bool> memory_is_short{false};
inline thread_local bool has_its_own = false;  ///< not short for this thread

}  // namespace parx_test

// noinline: once inlined, gcc takes malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (parx_test::memory_is_short && !parx_test::has_its_own) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
