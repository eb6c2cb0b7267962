// own_process: whether this is still the process that made a thing, or a copy forked from it.
//
// A forked process has a copy of everything but the threads: its sockets and shared memory are
// those of the rank that it was forked from. What would disturb that rank asks here first; it costs
// a load. fork() is noticed. A bare clone() is not, nor are vfork(), system(), popen() and
// posix_spawn(), whose process shares the rank's memory until it execs.
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

/// For a copy that a forked process must not end: nobody frees it, and no leak checker minds.
inline void keep_for_good(const void* copy) {
  static std::vector<const void*>& kept = *new std::vector<const void*>;
  kept.push_back(copy);
}

}  // namespace parx::detail
