// signal_watch: records a signal that asks this process to end, instead of ending it.
//
// While a watch lives, the first SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2 is recorded; the next
// one ends the process, as without a watch. Signals within 100 ms count as one: timeout(1) signals
// its child and then the child's group. So do, for a second, those from processes above this one:
// under srun slurmstepd signals a rank and parxrun, and parxrun passes its own on. A signal that
// the program handles, ignores or blocks is not touched. Handlers belong to the process: ranks that
// are threads of one process share them, and the last watch removes them. Safe from any thread.
#pragma once

#include <signal.h>

#include <array>
#include <atomic>
#include <cstddef>
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
  signal_watch& operator=(signal_watch&& other) noexcept {
    if (this != &other) {
      leave();
      active_ = std::exchange(other.active_, false);
    }
    return *this;
  }
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
  static constexpr std::int64_t same_request = 100'000'000;        // ns
  static constexpr std::int64_t passed_on_within = 1'000'000'000;  // ns

  struct process {
    std::mutex mutex;
    int watches = 0;
    std::array<bool, signals.size()> taken{};
    std::atomic<bool> handled{false};
  };
  [[nodiscard]] static process& the_process() noexcept;

  static inline std::atomic<int> noted{0};
  static inline std::atomic<std::int64_t> noted_at{0};
  static inline std::array<std::atomic<pid_t>, 32> above{};  // ancestors; 0 after the last
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler takes no locks");

  static void handle(int signal, siginfo_t* info, void* context) noexcept;
  /// Whether a process above this one has sent it; also one outside of this process's namespace.
  [[nodiscard]] static bool is_passed_on(const siginfo_t& info) noexcept;

  [[nodiscard]] static bool take(int signal) noexcept;
  static void give_back(int signal) noexcept;
  [[nodiscard]] static bool is_taken(int signal) noexcept;

  void leave() noexcept;

  bool active_ = false;
};

}  // namespace parx::train::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/train/detail/signal_watch_impl.hpp>
#endif
