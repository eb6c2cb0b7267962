// Definitions of signal_watch.hpp.
#pragma once

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include <parx/core/process_table.hpp>
#include <parx/train/detail/signal_watch.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE signal_watch::process& signal_watch::the_process() noexcept {
  static process the_only;
  return the_only;
}

PARX_INLINE bool signal_watch::is_passed_on(const siginfo_t& info) noexcept {
  if (info.si_code != SI_USER && info.si_code != SI_QUEUE) return false;
  return info.si_pid == 0 || std::find(above.begin(), above.end(), info.si_pid) != above.end();
}

PARX_INLINE bool signal_watch::take(int signal) noexcept {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return false;
  action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  return ::sigaction(signal, &action, nullptr) == 0;
}

PARX_INLINE void signal_watch::give_back(int signal) noexcept {
  struct sigaction action {};
  ::sigaction(signal, &action, nullptr);
}

PARX_INLINE bool signal_watch::is_taken(int signal) noexcept {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0 &&
         action.sa_sigaction == handle;
}

PARX_INLINE void signal_watch::leave() noexcept {
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

PARX_INLINE signal_watch signal_watch::start() {
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

PARX_INLINE void signal_watch::handle(int signal, siginfo_t* info, void*) noexcept {
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
