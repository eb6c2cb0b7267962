// file_limit: a limit on file sizes (ulimit -f) as an error like a full disk.
//
// The kernel sends the thread that would go over the limit a SIGXFSZ, which would end the process
// before it could say why. Shared memory counts as a file. Safe from any thread.
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace parx::detail {

/// What call() returns, a system call that makes a file grow: over the limit it is negative, and
/// errno is EFBIG.
template <typename Call>
[[nodiscard]] auto within_file_limit(Call call) noexcept {
  sigset_t limit, before;
  ::sigemptyset(&limit);
  ::sigaddset(&limit, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &limit, &before);
  const auto result = call();
  const int why = errno;
  if (result < 0 && why == EFBIG && ::sigismember(&before, SIGXFSZ) == 0) {
    const timespec none{};
    while (::sigtimedwait(&limit, nullptr, &none) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = why;
  return result;
}

/// As write(2).
[[nodiscard]] inline ssize_t write_file(int file, const void* bytes, std::size_t count) noexcept {
  return within_file_limit([&] { return ::write(file, bytes, count); });
}

}  // namespace parx::detail
