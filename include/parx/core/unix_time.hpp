// unix_seconds: the time of day as a number, for files that other programs read.
#pragma once

#include <chrono>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Seconds since 1970, with their fraction. The clock may be set meanwhile.
[[nodiscard]] inline double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace parx
