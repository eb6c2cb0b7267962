// own_process: whether this is still the process that created an object, or a forked copy of it.
//
// A forked process has a copy of everything but the threads: its sockets and shared memory are
// those of its parent, the rank. A destructor or exit hook that would disturb the rank checks here
// first, which costs a load. fork() is noticed. A bare clone() is not, nor are vfork(), system(),
// popen() and posix_spawn(), whose process shares the rank's memory until it execs.
#pragma once

#include <pthread.h>

#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// How many forks lie between this process and the program's first one.
inline unsigned forks = 0;

class own_process {
 public:
  own_process() noexcept : made_at_(forks) {
    [[maybe_unused]] static const int watches =
        ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  }

  [[nodiscard]] bool is_this() const noexcept { return forks == made_at_; }

 private:
  unsigned made_at_;
};

/// Leaks a forked process's copy of an object that it must not destroy. The copy stays reachable,
/// so that no leak checker reports it.
inline void keep_for_good(const void* copy) {
  static std::vector<const void*>& kept = *new std::vector<const void*>;
  kept.push_back(copy);
}

}  // namespace parx::detail
