// call_lock: the lock of a group's calls, taken only if another thread may make progress.
//
// Until the first asynchronous call, only the thread that uses the group accesses it. Small calls
// then avoid locked instructions, which stall until the store buffer has drained.
#pragma once

#include <condition_variable>
#include <mutex>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

enum class locking : bool { not_needed, needed };

class call_lock {
 public:
  call_lock(std::mutex& mutex, locking need)
      : lock_(mutex, std::defer_lock), shared_(need == locking::needed) {
    lock();
  }

  void lock() {
    if (shared_) lock_.lock();
  }
  void unlock() {
    if (shared_) lock_.unlock();
  }
  /// Without another thread nothing could make `enough()` true: returns at once.
  template <typename Enough>
  void wait(std::condition_variable& changed, Enough enough) {
    if (shared_) changed.wait(lock_, enough);
  }

 private:
  std::unique_lock<std::mutex> lock_;
  bool shared_;
};

}  // namespace parx::detail
