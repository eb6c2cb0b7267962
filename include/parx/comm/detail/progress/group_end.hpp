// group_end: whether a group has ended, and why.
//
// Every call checks it, and abort() may be called from any thread, so the check takes no lock.
// Threads: safe from any.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class group_end {
 public:
  [[nodiscard]] bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  /// Ends the group; an earlier reason is replaced.
  void set(std::string_view reason) {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    ended_.store(true, std::memory_order_release);
  }
  /// The same, but keeps an earlier reason.
  void set_if_first(std::string_view reason) {
    const std::lock_guard lock(mutex_);
    if (ended_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    ended_.store(true, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> ended_{false};
};

}  // namespace parx::detail
