// signals_as_data: while it lives, the signals that concern a launcher are read from a descriptor
// instead of interrupting anything. For a process with one thread.
#pragma once

#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::detail {

class signals_as_data {
 public:
  signals_as_data() {
    // Who ignores SIGCHLD, as some parents make their children do, never learns how a child ended.
    struct sigaction normal {};
    normal.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &normal, &child_action_before_);
    sigset_t handled;
    ::sigemptyset(&handled);
    for (const int signal :
         {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE, SIGTSTP}) {
      // What is ignored (SIGHUP under nohup) stays so, though a blocked signal would be delivered.
      struct sigaction action {};
      ::sigaction(signal, nullptr, &action);
      if (action.sa_handler != SIG_IGN) ::sigaddset(&handled, signal);
    }
    ::pthread_sigmask(SIG_BLOCK, &handled, &mask_before_);
    reader_ = descriptor(::signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!reader_.valid()) {
      const int why = errno;
      restore();
      throw_error(errc::io, "cannot watch for signals: {}", errno_text(why));
    }
  }
  signals_as_data(const signals_as_data&) = delete;
  signals_as_data& operator=(const signals_as_data&) = delete;
  ~signals_as_data() { restore(); }

  /// Readable when a signal has arrived; each read() gives one signalfd_siginfo.
  [[nodiscard]] int reader() const noexcept { return reader_.get(); }
  /// The mask that a child should have.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return mask_before_; }

 private:
  void restore() noexcept {
    ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    ::sigaction(SIGCHLD, &child_action_before_, nullptr);
  }

  struct sigaction child_action_before_ {};
  sigset_t mask_before_{};
  descriptor reader_;
};

}  // namespace parx::detail
