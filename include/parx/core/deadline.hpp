// deadline: a point on the steady clock by which something must have happened.
//
// Every wait in parx takes one. A duration is turned into a deadline once, at the outermost call,
// so that retries and inner waits share the same budget.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class deadline {
 public:
  using clock = std::chrono::steady_clock;
  using duration = std::chrono::milliseconds;

  /// `limit` from now. A limit of zero or less has already passed.
  [[nodiscard]] static deadline after(duration limit) noexcept {
    return after(limit, clock::now());
  }
  /// `limit` from `start`, which is not in the future, but may be before the machine's start.
  [[nodiscard]] static deadline after(duration limit, clock::time_point start) noexcept {
    const auto origin = std::max(start, clock::time_point{});  // the furthest from the clock's end
    if (limit >= std::chrono::duration_cast<duration>(clock::time_point::max() - origin)) {
      return never();
    }
    return {start, start + limit};
  }
  [[nodiscard]] static deadline never() noexcept {
    return {clock::now(), clock::time_point::max()};
  }
  /// The value of a deadline before it is set: never passes. Reads no clock.
  [[nodiscard]] static deadline unset() noexcept { return {{}, clock::time_point::max()}; }
  [[nodiscard]] bool is_unset() const noexcept { return start_ == clock::time_point{}; }

  [[nodiscard]] bool passed() const noexcept { return !is_never() && clock::now() >= end_; }
  [[nodiscard]] bool is_never() const noexcept { return end_ == clock::time_point::max(); }

  /// Time left, never negative.
  [[nodiscard]] duration remaining() const noexcept {
    if (is_never()) return duration::max();
    return std::max(duration::zero(), std::chrono::ceil<duration>(end_ - clock::now()));
  }
  /// Seconds since the deadline was made, the "after 30.0 s" of error messages; 0 while unset.
  [[nodiscard]] double elapsed_seconds() const noexcept {
    if (is_unset()) return 0;
    return std::chrono::duration<double>(clock::now() - start_).count();
  }
  /// The limit as an argument for poll(2): milliseconds, at most `cap`, -1 for no limit.
  [[nodiscard]] int poll_timeout(int cap = -1) const noexcept {
    if (is_never()) return cap;
    const auto left = std::min<duration::rep>(remaining().count(), INT_MAX);
    return cap < 0 ? static_cast<int>(left) : std::min(cap, static_cast<int>(left));
  }
  [[nodiscard]] clock::time_point end() const noexcept { return end_; }

 private:
  deadline(clock::time_point start, clock::time_point end) noexcept : start_(start), end_(end) {}
  clock::time_point start_;
  clock::time_point end_;
};

}  // namespace parx
