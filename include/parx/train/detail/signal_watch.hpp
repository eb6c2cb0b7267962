// signal_watch: notes that this process is asked to end, where the signal would have ended it.
//
// While a watch lives, the first SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 is noted; the next one
// ends the process, as without a watch. What comes within 100 ms is the same wish: timeout(1) tells
// its child and then the child's group. A signal that the program handles, ignores or blocks is
// left to it. Handlers belong to a process: ranks that are threads of one share them, and the last
// watch takes them away. Safe from any thread.
#pragma once

#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

class signal_watch {
 public:
  /// Watches nothing.
  signal_watch() = default;
  [[nodiscard]] static signal_watch start() {
    signal_watch made;
    made.active_ = true;
    process& all = the_process();
    const std::lock_guard lock(all.mutex);
    if (all.watches++ == 0) {
      noted = 0;
      noted_at = 0;
      all.heeded = false;
      for (std::size_t i = 0; i < signals.size(); ++i) all.taken[i] = take(signals[i]);
    }
    return made;
  }
  signal_watch(signal_watch&& other) noexcept : active_(std::exchange(other.active_, false)) {}
  signal_watch& operator=(signal_watch&& other) noexcept {
    if (this != &other) {
      leave();
      active_ = std::exchange(other.active_, false);
    }
    return *this;
  }
  /// A signal that came and was not heeded has its way after the last watch.
  ~signal_watch() { leave(); }

  /// The signal that was noted; 0 while there is none.
  [[nodiscard]] int signal() const noexcept { return active_ ? noted.load() : 0; }
  /// What was or will be noted is done as it wishes.
  void heed() noexcept {
    if (active_) the_process().heeded = true;
  }

 private:
  static constexpr std::array<int, 5> signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  static constexpr std::int64_t same_wish = 100'000'000;  // ns

  struct process {
    std::mutex mutex;
    int watches = 0;
    std::array<bool, signals.size()> taken{};
    std::atomic<bool> heeded{false};
  };
  [[nodiscard]] static process& the_process() noexcept {
    static process the_only;
    return the_only;
  }

  static inline std::atomic<int> noted{0};
  static inline std::atomic<std::int64_t> noted_at{0};
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler takes no locks");

  static void handle(int signal) noexcept {
    const int errno_before = errno;
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    const std::int64_t now = std::int64_t{clock.tv_sec} * 1'000'000'000 + clock.tv_nsec;
    std::int64_t first = 0;
    if (noted_at.compare_exchange_strong(first, now)) {
      noted = signal;
    } else if (now - first > same_wish) {
      set(signal, SIG_DFL);
      ::raise(signal);  // when this handler returns
    }
    errno = errno_before;
  }

  static void set(int signal, void (*handler)(int)) noexcept {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
  [[nodiscard]] static bool has(int signal, void (*handler)(int)) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == handler;
  }
  [[nodiscard]] static bool take(int signal) noexcept {
    if (!has(signal, SIG_DFL)) return false;
    set(signal, handle);
    return true;
  }

  void leave() noexcept {
    if (!std::exchange(active_, false)) return;
    process& all = the_process();
    const std::lock_guard lock(all.mutex);
    if (--all.watches > 0) return;
    for (std::size_t i = 0; i < signals.size(); ++i) {
      // The program may have set a handler of its own meanwhile.
      if (all.taken[i] && has(signals[i], handle)) set(signals[i], SIG_DFL);
    }
    if (const int signal = noted; signal != 0 && !all.heeded) ::raise(signal);
  }

  bool active_ = false;
};

}  // namespace parx::train::detail
