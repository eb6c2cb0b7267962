// float_control: the word by which a thread chooses how its processor rounds and what it does with
// denormal numbers. Threads that compute parts of one result need the same. Always 0 on processors
// other than x86-64 and AArch64.
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace parx::inline PARX_ABI::detail {

struct float_control {
#if defined(__x86_64__)
  using word = std::uint32_t;
  static constexpr word flushing = 0x8040;  ///< MXCSR: FTZ of results and DAZ of operands
  static constexpr word flags = 0x3F;       ///< exceptions that have happened: of no effect
  [[nodiscard]] static word get() noexcept { return _mm_getcsr(); }
  static void set(word value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using word = std::uint64_t;
  static constexpr word flushing = word{1} << 24U;  ///< FPCR.FZ
  static constexpr word flags = 0;
  [[nodiscard]] static word get() noexcept {
    word value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set(word value) noexcept { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using word = std::uint32_t;
  static constexpr word flushing = 0, flags = 0;
  [[nodiscard]] static word get() noexcept { return 0; }
  static void set(word /*value*/) noexcept {}
#endif
};

}  // namespace parx::detail
