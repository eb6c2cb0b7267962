// stop_requests: what a signal means that asks parxrun to end, by those that came before. Pure.
#pragma once

#include <chrono>
#include <csignal>

#include <parx/core/abi.hpp>
#include <parx/core/deadline.hpp>

namespace parx::inline PARX_ABI::detail {

/// How soon after a request to end a signal is still the same one: timeout(1) signals its child and
/// then the child's process group. Only a person at the terminal (SIGINT) is as quick as a busy
/// launcher.
[[nodiscard]] constexpr std::chrono::milliseconds same_request_within(int signal) noexcept {
  return std::chrono::milliseconds(signal == SIGINT ? 100 : 1000);
}

enum class stop_request {
  first,   ///< the ranks may save their work
  same,    ///< the last one, which has come twice
  second,  ///< whoever asked does not want to wait
};

class stop_requests {
 public:
  using time_point = deadline::clock::time_point;

  stop_request take(int signal, time_point now) {
    if (!was_asked_) {
      was_asked_ = true;
      asked_at_ = now;
      return stop_request::first;
    }
    const bool is_same = signal == SIGPIPE || now - asked_at_ <= same_request_within(signal);
    was_asked_twice_ |= !is_same;
    return is_same ? stop_request::same : stop_request::second;
  }
  [[nodiscard]] bool was_asked() const noexcept { return was_asked_; }
  [[nodiscard]] bool was_asked_twice() const noexcept { return was_asked_twice_; }

 private:
  bool was_asked_ = false;
  bool was_asked_twice_ = false;
  time_point asked_at_{};
};

}  // namespace parx::detail
