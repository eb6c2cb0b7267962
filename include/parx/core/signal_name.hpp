// signal_name: what people call a signal.
#pragma once

#include <csignal>
#include <string>

#include <fmt/format.h>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// "SIGTERM" for 15; "signal 40" for one that has no name.
[[nodiscard]] inline std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

}  // namespace parx::detail
