// start_thread: a thread of the library's own, and an error that says what could not be started.
#pragma once

#include <signal.h>

#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::detail {

/// Runs `body` in a thread that takes none of the program's signals, except those of faults of its
/// own: other threads handle them. `purpose` names it in the error, errc::io, where the system has
/// no room for a thread.
template <typename Body>
[[nodiscard, gnu::cold]] std::thread start_thread(std::string_view purpose, Body body) {
  struct signals_held {
    sigset_t before;
    signals_held() noexcept {
      sigset_t all;
      ::sigfillset(&all);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
        ::sigdelset(&all, fault);
      }
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~signals_held() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  };
  const signals_held inherited;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    throw error(errc::io,
                formatted("the thread {} cannot be started: {}", purpose, refused.code().message()),
                {.advice = "Raise the limit on processes (ulimit -u, or that of the job's cgroup) "
                           "or on memory (ulimit -v)"});
  }
}

}  // namespace parx::detail
