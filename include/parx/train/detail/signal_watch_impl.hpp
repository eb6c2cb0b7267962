// Definitions of signal_watch.hpp.
#pragma once

#include <time.h>

#include <cerrno>
#include <cstddef>

#include <parx/train/detail/signal_watch.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE signal_watch signal_watch::start() {
  signal_watch made;
  made.active_ = true;
  process& all = the_process();
  const std::lock_guard lock(all.mutex);
  if (all.watches++ == 0) {
    noted = 0;
    noted_at = 0;
    all.handled = false;
    for (std::size_t i = 0; i < signals.size(); ++i) all.taken[i] = take(signals[i]);
  }
  return made;
}

PARX_INLINE signal_watch& signal_watch::operator=(signal_watch&& other) noexcept {
  if (this != &other) {
    leave();
    active_ = std::exchange(other.active_, false);
  }
  return *this;
}

PARX_INLINE void signal_watch::handle(int signal) noexcept {
  const int errno_before = errno;
  timespec clock{};
  ::clock_gettime(CLOCK_MONOTONIC, &clock);
  const std::int64_t now = std::int64_t{clock.tv_sec} * 1'000'000'000 + clock.tv_nsec;
  std::int64_t first = 0;
  if (noted_at.compare_exchange_strong(first, now)) {
    noted = signal;
  } else if (now - first > same_request) {
    set(signal, SIG_DFL);
    ::raise(signal);  // takes effect when this handler returns
  }
  errno = errno_before;
}

PARX_INLINE void signal_watch::set(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

PARX_INLINE bool signal_watch::take(int signal) noexcept {
  if (!has(signal, SIG_DFL)) return false;
  set(signal, handle);
  return true;
}

PARX_INLINE void signal_watch::leave() noexcept {
  if (!std::exchange(active_, false)) return;
  process& all = the_process();
  const std::lock_guard lock(all.mutex);
  if (--all.watches > 0) return;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    // The program may have installed a handler of its own in the meantime.
    if (all.taken[i] && has(signals[i], handle)) set(signals[i], SIG_DFL);
  }
  if (const int signal = noted; signal != 0 && !all.handled) ::raise(signal);
}

}  // namespace parx::train::detail
