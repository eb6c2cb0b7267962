// backoff: what a waiting rank does with its core before it sleeps in the kernel.
//
// It spins for a moment where it has a core of its own, then hands the core on with sched_yield,
// which is cheaper than sleep and wake-up as long as the others are ranks that hand it back; where
// it is alone on its core, a yield is only a slower spin. Beside a process that computes, one yield
// costs a whole time slice; then yielding is left alone for a while, longer each time. And where a
// yield let somebody else run for a moment, the scheduler has put two ranks on one core, whatever
// cores there are: until a yield finds nobody, they hand it to and fro instead of spinning first.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace parx::detail {

class backoff {
 public:
  /// Forgets the rounds of the last wait.
  void progressed() noexcept { rounds_ = 0; }

  /// One idle round. False when it is time to sleep.
  [[nodiscard]] bool idle(bool own_core) noexcept {
    if (own_core && !shares_core_) {
      if (++rounds_ % rounds_between_looks != 0) return pause();
      const auto now = clock::now();
      if (rounds_ == rounds_between_looks) began_ = now;
      if (now - began_ < spin_time) return pause();
      return now - began_ < yield_time && yield();
    }
    return ++rounds_ <= crowded_yields && yield();
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr int rounds_between_looks = 16;  // a round: some nanoseconds, or two system calls
  static constexpr std::chrono::microseconds spin_time{20};
  static constexpr std::chrono::microseconds yield_time{300};
  static constexpr int crowded_yields = 30;
  static constexpr std::chrono::nanoseconds switch_time{1500};  ///< a yield that found somebody
  static constexpr std::chrono::microseconds time_slice{500};
  static constexpr clock::duration first_pause = std::chrono::milliseconds(25);
  static constexpr clock::duration longest_pause = std::chrono::milliseconds(200);

  [[nodiscard]] static bool pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
    return true;
  }

  /// False where it would cost more than a sleep.
  [[nodiscard]] bool yield() noexcept {
    const auto before = clock::now();
    if (before < resume_) return false;
    ::sched_yield();
    const auto after = clock::now();
    const bool shared = after - before > switch_time && after - before <= time_slice;
    if (std::exchange(shares_core_, shared) != shared) rounds_ = 0;
    if (after - before > time_slice) {
      resume_ = after + pause_;
      pause_ = std::min<clock::duration>(2 * pause_, longest_pause);
    } else {
      pause_ = first_pause;
    }
    return true;
  }

  int rounds_ = 0;
  bool shares_core_ = false;
  clock::time_point began_{};
  clock::time_point resume_{};
  clock::duration pause_ = first_pause;
};

}  // namespace parx::detail
