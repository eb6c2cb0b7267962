// file_limit: writes to files report the file size limit (ulimit -f) as an error, like a full disk.
//
// The kernel sends SIGXFSZ to the thread that would exceed the limit, which would end the process
// before it could say why. Shared memory counts as a file. Safe from any thread.
#pragma once

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// The result of call(), a system call that makes a file grow. Beyond the limit it is negative with
/// errno EFBIG, and no signal is delivered.
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

struct write_result {
  std::size_t written = 0;
  int reason = 0;  ///< the errno of a failure, 0 when all was written
};

/// Writes all bytes with one write(2), and further ones only after an interrupted or short write.
[[nodiscard]] inline write_result write_all(int file, std::span<const std::byte> bytes) noexcept {
  write_result result;
  while (result.written < bytes.size()) {
    const auto rest = bytes.subspan(result.written);
    const ssize_t count =
        within_file_limit([&] { return ::write(file, rest.data(), rest.size()); });
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {result.written, count < 0 ? errno : EIO};
    result.written += static_cast<std::size_t>(count);
  }
  return result;
}
[[nodiscard]] inline write_result write_all(int file, std::string_view text) noexcept {
  return write_all(file, std::as_bytes(std::span(text)));
}

}  // namespace parx::detail
