// stopped_by_signal: the end of work that was asked to end by a signal, and has been saved.
//
// Not a failure: whoever starts the program again goes on where it was. So it is neither an error
// nor a usage_error, and parx::run() returns a code of its own for it.
#pragma once

#include <stdexcept>
#include <string>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// What a program returns that was stopped by a signal, has saved its work and wants to be started
/// again: EX_TEMPFAIL of sysexits.h. A program that a signal killed has 128 + the signal instead.
inline constexpr int stopped_exit_code = 75;

class stopped_by_signal : public std::runtime_error {
 public:
  /// `message` says where the work is and how to go on.
  stopped_by_signal(int signal, const std::string& message)
      : std::runtime_error(message), signal_(signal) {}

  /// SIGTERM, SIGINT, ...: where ranks got several, one that all of them name.
  [[nodiscard]] int signal() const noexcept { return signal_; }

 private:
  int signal_;
};

}  // namespace parx
