// tile_registers: whether this process may use those of AMX.
//
// Linux gives them to a process that asks (5.16 and later). It refuses where a thread has a
// sigaltstack below the signal frame with them (AT_MINSIGSTKSZ), or where a seccomp filter forbids
// the call. From then on, sigaltstack(2) refuses such small stacks. Children of fork inherit the
// right. Source: Documentation/arch/x86/xstate.rst.
#pragma once

#include <string>

#if defined(__x86_64__)
#include <cerrno>
#include <cpuid.h>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Asks for them. Returns "", or why there are none.
[[nodiscard, gnu::cold]] inline std::string ask_for_tile_registers() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned bf16_and_tile = 1U << 22U | 1U << 24U;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & bf16_and_tile) != bf16_and_tile) {
    return "the processor has none, or the virtual machine hides it";
  }
  unsigned low = 0, high = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (c >> 27U & 1U) != 0) {  // OSXSAVE
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  }
  if ((low >> 17U & 3U) != 3U) {
    return "the kernel does not save tile registers; Linux does from 5.16 on";
  }
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM
  if (::syscall(SYS_arch_prctl, request_permission, tile_data) == 0) return "";
  if (errno == ENOSPC) {
    return "a thread's sigaltstack is too small for a signal frame with tile registers";
  }
  return std::string("Linux refuses the tile registers: ") + std::strerror(errno);
#else
  return "it is no x86-64 processor";
#endif
}

}  // namespace parx::detail
