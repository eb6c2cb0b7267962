// Counts each thread's calls of operator new. For one file of a program: it replaces them.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace parx_test {

inline thread_local std::size_t allocations = 0;

}  // namespace parx_test

// noinline: once inlined, gcc takes malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++parx_test::allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
