// flush_denormals: a scope in which this thread treats denormal numbers as zero.
//
// Processors compute with denormals (below 1.2e-38 for float) in microcode, a hundred times slower.
// They arise where gradients vanish: a network whose loss had reached zero took 120 ms for a
// backward pass instead of 8. backward() opens such a scope itself. Scopes nest. Does nothing on
// processors other than x86-64 and AArch64. Source: PyTorch's set_flush_denormal.
#pragma once

#include <cstdint>

#include <parx/core/abi.hpp>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace parx::inline PARX_ABI {

class [[nodiscard]] flush_denormals {
 public:
  flush_denormals() noexcept : before_(control()) { set_control(before_ | flushing); }
  flush_denormals(const flush_denormals&) = delete;
  flush_denormals& operator=(const flush_denormals&) = delete;
  ~flush_denormals() { set_control(before_); }

 private:
#if defined(__x86_64__)
  using word = unsigned;
  static constexpr word flushing = 0x8040;  // MXCSR: FTZ of results and DAZ of operands
  [[nodiscard]] static word control() noexcept { return _mm_getcsr(); }
  static void set_control(word value) noexcept { _mm_setcsr(value); }
#elif defined(__aarch64__)
  using word = std::uint64_t;
  static constexpr word flushing = word{1} << 24U;  // FPCR.FZ
  [[nodiscard]] static word control() noexcept {
    word value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(word value) noexcept { asm volatile("msr fpcr, %0" : : "r"(value)); }
#else
  using word = unsigned;
  static constexpr word flushing = 0;
  [[nodiscard]] static word control() noexcept { return 0; }
  static void set_control(word /*value*/) noexcept {}
#endif

  word before_;
};

}  // namespace parx
