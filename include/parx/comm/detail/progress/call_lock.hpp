// call_lock: the lock of a group's calls, taken only where another thread may make progress.
//
// Until the first asynchronous call the thread that uses the group is alone with it. Its small
// calls then need no locked instruction, which would wait for what they have just written to reach
// another core.
#pragma once

#include <condition_variable>
#include <mutex>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

enum class locking : bool { needless, needed };

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
  /// Where no other thread is, none can make `enough()` true.
  template <typename Enough>
  void wait(std::condition_variable& changed, Enough enough) {
    if (shared_) changed.wait(lock_, enough);
  }

 private:
  std::unique_lock<std::mutex> lock_;
  bool shared_;
};

}  // namespace parx::detail
