// stopped_by_signal: thrown when a signal has asked the program to stop and its work is saved.
//
// Not a failure: when the program is started again, it resumes. So this is neither an error nor a
// usage_error, and parx::run() returns an exit code of its own for it.
#pragma once

#include <atomic>
#include <stdexcept>
#include <string>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The exit code of a program that saved its work on a signal and wants to be started again:
/// EX_TEMPFAIL of sysexits.h. A program that a signal killed has 128 + the signal instead.
inline constexpr int stopped_exit_code = 75;

class stopped_by_signal : public std::runtime_error {
 public:
  /// `message` says where the work is and how to go on.
  stopped_by_signal(int signal, const std::string& message)
      : std::runtime_error(message), signal_(signal) {
    ++living();
  }
  stopped_by_signal(const stopped_by_signal& other) noexcept
      : std::runtime_error(other), signal_(other.signal_) {
    ++living();
  }
  stopped_by_signal& operator=(const stopped_by_signal&) = default;
  ~stopped_by_signal() override { --living(); }

  /// SIGTERM, SIGINT, ...: the same on all ranks, even if they received different ones.
  [[nodiscard]] int signal() const noexcept { return signal_; }

  /// Whether one is on its way in this process: a destructor cannot see the exception that it runs
  /// because of.
  [[nodiscard]] static bool is_thrown() noexcept { return living() > 0; }

 private:
  [[nodiscard]] static std::atomic<int>& living() noexcept {
    static std::atomic<int> count{0};
    return count;
  }

  int signal_;
};

}  // namespace parx
