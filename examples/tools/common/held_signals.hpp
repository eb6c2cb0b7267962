// held_signals: the signals that ask a program to end (SIGINT, SIGTERM, SIGHUP) wait while one
// lives, so that what was begun elsewhere can be undone. One that has come ends the program then.
#pragma once

#include <sys/signalfd.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include <parx/core/abi.hpp>
#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::slurm {

namespace detail {

/// They ask a program to end.
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP};

/// The mask of a child: this process's, without what held_signals has added.
[[nodiscard]] inline sigset_t mask_of_child(sigset_t own) {
  for (const int each : ending_signals) ::sigdelset(&own, each);
  return own;
}

}  // namespace detail

/// Make one in a process with one thread, before what is to be undone and so outliving it.
class held_signals {
 public:
  held_signals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    for (const int each : detail::ending_signals) ::sigaddset(&signals, each);
    ::sigprocmask(SIG_BLOCK, &signals, &before_);
    waiting_ = descriptor(::signalfd(-1, &signals, SFD_CLOEXEC));
  }
  held_signals(const held_signals&) = delete;
  held_signals& operator=(const held_signals&) = delete;
  ~held_signals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

  /// Readable while a signal waits. Nobody reads it, because that would take the signal away.
  [[nodiscard]] int waiting() const noexcept { return waiting_.get(); }

  [[nodiscard]] bool one_waits() const {
    sigset_t pending;
    ::sigemptyset(&pending);
    ::sigpending(&pending);
    return std::any_of(std::begin(detail::ending_signals), std::end(detail::ending_signals),
                       [&](int each) { return ::sigismember(&pending, each) == 1; });
  }

 private:
  sigset_t before_{};
  descriptor waiting_;
};

}  // namespace parx::slurm
