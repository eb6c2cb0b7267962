// member_count: the number of a server's open connections that have made a request.
// Threads: safe from any.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

#include <parx/core/deadline.hpp>

namespace parx::inline PARX_ABI::detail {

class member_count {
 public:
  void join() {
    const std::lock_guard lock(mutex_);
    ++members_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --members_;
    left_.notify_all();
  }
  [[nodiscard]] std::size_t now() const {
    const std::lock_guard lock(mutex_);
    return members_;
  }
  /// Waits until at most `few` are left. False when the deadline passed first.
  [[nodiscard]] bool wait_for(std::size_t few, const deadline& limit) const {
    std::unique_lock lock(mutex_);
    const auto gone = [&] { return members_ <= few; };
    if (!limit.is_never()) return left_.wait_until(lock, limit.end(), gone);
    left_.wait(lock, gone);
    return true;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable left_;
  std::size_t members_ = 0;
};

}  // namespace parx::detail
