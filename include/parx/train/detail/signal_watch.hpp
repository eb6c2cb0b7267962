// signal_watch: records a signal that asks this process to end, instead of ending it.
//
// While a watch lives, the first SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 is recorded; the next
// one ends the process, as without a watch. Signals within 100 ms count as one: timeout(1) signals
// its child and then the child's group. A signal that the program handles, ignores or blocks is not
// touched. Handlers belong to the process: ranks that are threads of one process share them, and
// the last watch removes them. Safe from any thread.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::train::detail {

class signal_watch {
 public:
  /// Records nothing.
  signal_watch() = default;
  [[nodiscard]] static signal_watch start();
  signal_watch(signal_watch&& other) noexcept : active_(std::exchange(other.active_, false)) {}
  signal_watch& operator=(signal_watch&& other) noexcept;
  /// The last watch raises a recorded signal again unless it was marked as handled.
  ~signal_watch() { leave(); }

  /// The recorded signal; 0 if there is none.
  [[nodiscard]] int signal() const noexcept { return active_ ? noted.load() : 0; }
  /// The caller acts on any signal recorded before or after this call: it is not raised again.
  void mark_handled() noexcept {
    if (active_) the_process().handled = true;
  }

 private:
  static constexpr std::array<int, 5> signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  static constexpr std::int64_t same_request = 100'000'000;  // ns

  struct process {
    std::mutex mutex;
    int watches = 0;
    std::array<bool, signals.size()> taken{};
    std::atomic<bool> handled{false};
  };
  [[nodiscard]] static process& the_process() noexcept {
    static process the_only;
    return the_only;
  }

  static inline std::atomic<int> noted{0};
  static inline std::atomic<std::int64_t> noted_at{0};
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler takes no locks");

  static void handle(int signal) noexcept;

  static void set(int signal, void (*handler)(int)) noexcept;
  [[nodiscard]] static bool has(int signal, void (*handler)(int)) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == handler;
  }
  [[nodiscard]] static bool take(int signal) noexcept;

  void leave() noexcept;

  bool active_ = false;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/signal_watch_impl.hpp>
#endif
