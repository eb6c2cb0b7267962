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
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/process_table.hpp>

namespace parx::inline PARX_ABI::train::detail {

class signal_watch {
 public:
  /// Records nothing.
  signal_watch() = default;
  [[nodiscard]] static signal_watch start() {
    signal_watch made;
    made.active_ = true;
    process& all = the_process();
    const std::lock_guard lock(all.mutex);
    if (all.watches++ == 0) {
      noted = 0;
      noted_at = 0;
      all.handled = false;
      const std::vector<pid_t> ancestors = parx::detail::ancestors();
      for (std::size_t i = 0; i < above.size(); ++i) {
        above[i] = i < ancestors.size() ? ancestors[i] : 0;
      }
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
  [[nodiscard]] static process& the_process() noexcept {
    static process the_only;
    return the_only;
  }

  static inline std::atomic<int> noted{0};
  static inline std::atomic<std::int64_t> noted_at{0};
  static inline std::array<std::atomic<pid_t>, 32> above{};  // ancestors; 0 after the last
  static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler takes no locks");

  static void handle(int signal, siginfo_t* info, void* context) noexcept;
  /// Whether a process above this one has sent it; also one outside of this process's namespace.
  [[nodiscard]] static bool is_passed_on(const siginfo_t& info) noexcept {
    if (info.si_code != SI_USER && info.si_code != SI_QUEUE) return false;
    return info.si_pid == 0 || std::find(above.begin(), above.end(), info.si_pid) != above.end();
  }

  [[nodiscard]] static bool take(int signal) noexcept {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return false;
    action = {};
    action.sa_sigaction = handle;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(signal, &action, nullptr) == 0;
  }
  static void give_back(int signal) noexcept {
    struct sigaction action {};
    ::sigaction(signal, &action, nullptr);
  }
  [[nodiscard]] static bool is_taken(int signal) noexcept {
    struct sigaction action {};
    return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0 &&
           action.sa_sigaction == handle;
  }

  void leave() noexcept {
    if (!std::exchange(active_, false)) return;
    process& all = the_process();
    const std::lock_guard lock(all.mutex);
    if (--all.watches > 0) return;
    for (std::size_t i = 0; i < signals.size(); ++i) {
      // The program may have installed a handler of its own in the meantime.
      if (all.taken[i] && is_taken(signals[i])) give_back(signals[i]);
    }
    if (const int signal = noted; signal != 0 && !all.handled) ::raise(signal);
  }

  bool active_ = false;
};

inline void signal_watch::handle(int signal, siginfo_t* info, void*) noexcept {
  const int errno_before = errno;
  timespec clock{};
  ::clock_gettime(CLOCK_MONOTONIC, &clock);
  const std::int64_t now = std::int64_t{clock.tv_sec} * 1'000'000'000 + clock.tv_nsec;
  std::int64_t first = 0;
  if (noted_at.compare_exchange_strong(first, now)) {
    noted = signal;
  } else if (now - first > (is_passed_on(*info) ? passed_on_within : same_request)) {
    give_back(signal);
    ::raise(signal);  // takes effect when this handler returns
  }
  errno = errno_before;
}

}  // namespace parx::train::detail
