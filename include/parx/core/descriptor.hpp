// descriptor: owns a file descriptor and closes it.
//
// Every descriptor that parx makes is close-on-exec, so that a child process never keeps a port or
// a connection alive; the flag is given at creation, where it cannot race with a fork.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class descriptor {
 public:
  descriptor() = default;
  /// Takes ownership of `number`; -1 owns nothing.
  explicit descriptor(int number) noexcept : number_(number) {}
  descriptor(descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    descriptor taken(std::move(other));
    std::swap(number_, taken.number_);
    return *this;
  }
  ~descriptor() { close(); }

  [[nodiscard]] int get() const noexcept { return number_; }
  [[nodiscard]] bool valid() const noexcept { return number_ >= 0; }
  /// Gives up ownership.
  [[nodiscard]] int release() noexcept { return std::exchange(number_, -1); }
  void close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

/// Opens /dev/null as standard input, output or error where the parent process has closed it.
/// open() and socket() return the lowest free number, so that printed text would otherwise go into
/// a checkpoint or to a peer. Call it before anything else is opened; children inherit the three.
inline void fill_standard_descriptors() noexcept {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", O_RDWR) < 0) return;  // it is the lowest free number
  }
}

}  // namespace parx
