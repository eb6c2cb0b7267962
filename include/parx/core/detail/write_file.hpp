// write_file: write(2) to a file, in which a limit on file sizes (ulimit -f) is an error like a full
// disk.
//
// The kernel sends the thread that goes over the limit a SIGXFSZ, which would end the process before
// it could say why. Safe from any thread.
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace parx::detail {

/// As write(2); over the limit it returns -1 and errno is EFBIG.
[[nodiscard]] inline ssize_t write_file(int file, const void* bytes, std::size_t count) noexcept {
  sigset_t limit, before;
  ::sigemptyset(&limit);
  ::sigaddset(&limit, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &limit, &before);
  const ssize_t written = ::write(file, bytes, count);
  const int why = errno;
  if (written < 0 && why == EFBIG && ::sigismember(&before, SIGXFSZ) == 0) {
    const timespec none{};
    while (::sigtimedwait(&limit, nullptr, &none) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = why;
  return written;
}

}  // namespace parx::detail
