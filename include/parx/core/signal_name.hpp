// signal_name: a signal number as text.
#pragma once

#include <csignal>
#include <string>

#include <parx/core/abi.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// "SIGTERM" for 15; "signal 40" for one that has no name.
[[nodiscard]] inline std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? formatted("SIG{}", name) : formatted("signal {}", signal);
}

}  // namespace parx::detail
