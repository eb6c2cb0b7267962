// coarse_clock: the steady clock as of the kernel's last tick, 1 to 10 ms ago.
//
// It reads no counter of the processor: for paths where the 20 ns of steady_clock::now() are too
// much.
#pragma once

#include <time.h>

#include <chrono>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::chrono::steady_clock::time_point coarse_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return std::chrono::steady_clock::time_point(std::chrono::seconds(now.tv_sec) +
                                               std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace parx::detail
