// backoff: spinning and yielding of a waiting rank before it sleeps in the kernel.
//
// A rank with a core of its own spins briefly, then calls sched_yield. A yield is cheaper than
// sleep and wake-up as long as the other threads on the core are ranks that yield as well; alone on
// a core, a yield is only a slower spin. Next to a process that computes, one yield costs a whole
// time slice; then the rank stops yielding for a while, each time twice as long. If another thread
// ran briefly during a yield, two ranks share a core. If there are cores enough for all, the
// scheduler has put them together and may leave them so for 100 ms. The rank then sleeps once,
// because the kernel wakes a thread on an idle core. Until then the two alternate. (Two
// ranks beside three compilers on 2 cores, medians of an all_reduce of 4 B: 3 us; bound to a core
// each 3 to 50.)
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class backoff {
 public:
  /// The wait has ended.
  void progressed() noexcept {
    rounds_ = 0;
    began_ = {};
  }

  /// Whether this wait has lasted until a clock was read.
  [[nodiscard]] bool has_begun() const noexcept { return began_ != clock::time_point{}; }

  /// One idle round. False when it is time to sleep.
  [[nodiscard]] bool idle(bool own_core) noexcept {
    if (own_core && !shares_core_ && ++rounds_ % rounds_between_looks != 0) return pause();
    const auto now = clock::now();
    if (!has_begun()) {
      began_ = now;
      if (own_core) static_cast<void>(was_switched());  // forgets switches before this wait
    }
    if (!own_core) return ++rounds_ <= crowded_yields && yield(own_core, now);
    if (now - began_ >= yield_time) return false;
    if (!shares_core_ && now - began_ < spin_time) return pause();
    return yield(own_core, now) && !is_time_to_move(now);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr int rounds_between_looks = 16;  // a round: some nanoseconds, or two system calls
  static constexpr std::chrono::microseconds spin_time{20};
  /// Per wait, spinning included. An idle core of a virtual machine takes 50 to 100 us to wake up,
  /// or milliseconds if the host has given it to another machine.
  static constexpr std::chrono::microseconds yield_time{2000};
  static constexpr int crowded_yields = 30;
  static constexpr std::chrono::nanoseconds switch_time{1500};  ///< least time of a context switch
  /// If a yield takes longer, another process computes on this core. On crowded cores the others
  /// may be ranks that reduce a chunk each: four of them together take more than a millisecond.
  static constexpr std::chrono::microseconds longest_turn{500};
  static constexpr std::chrono::microseconds longest_crowded_turns{1800};
  static constexpr clock::duration first_pause = std::chrono::milliseconds(25);
  static constexpr clock::duration longest_pause = std::chrono::milliseconds(200);
  static constexpr clock::duration time_between_moves = std::chrono::milliseconds(1);

  [[nodiscard]] static bool pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
    return true;
  }

  /// False while a yield would cost more than a sleep.
  [[nodiscard]] bool yield(bool own_core, clock::time_point before) noexcept {
    if (before < resume_) return false;
    ::sched_yield();
    const auto after = clock::now();
    const auto taken = after - before;
    // A long yield need not be a context switch: the host may have taken the virtual machine's
    // core.
    const bool switched = taken > switch_time && (!own_core || was_switched());
    const bool busy = switched && taken > (own_core ? longest_turn : longest_crowded_turns);
    shares_core_ = switched && !busy;
    if (busy) {
      resume_ = after + pause_;
      pause_ = std::min<clock::duration>(2 * pause_, longest_pause);
    } else {
      pause_ = first_pause;
    }
    return true;
  }

  /// Whether this thread was switched out since the last call.
  [[nodiscard]] bool was_switched() noexcept {
    rusage used{};
    ::getrusage(RUSAGE_THREAD, &used);
    const long switches = used.ru_nvcsw + used.ru_nivcsw;
    return std::exchange(switches_, switches) != switches;
  }

  /// Whether to sleep once, to be woken on an idle core; at most once per time_between_moves.
  [[nodiscard]] bool is_time_to_move(clock::time_point now) noexcept {
    if (!shares_core_ || now < next_move_) return false;
    next_move_ = now + time_between_moves;
    return true;
  }

  int rounds_ = 0;
  bool shares_core_ = false;
  long switches_ = 0;
  clock::time_point began_{};  ///< start of the wait
  clock::time_point resume_{};
  clock::time_point next_move_{};
  clock::duration pause_ = first_pause;
};

}  // namespace parx::detail
