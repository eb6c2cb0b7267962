// ending: whether a group has ended, and why.
//
// Every call asks, and abort() may come from any thread, so asking takes no lock while the group
// lives.
// Threads: safe from any.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class ending {
 public:
  [[nodiscard]] bool reached() const noexcept { return come_.load(std::memory_order_acquire); }
  [[nodiscard]] std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  /// Ends the group; an earlier reason is replaced.
  void come(std::string_view reason) {
    const std::lock_guard lock(mutex_);
    reason_ = reason;
    come_.store(true, std::memory_order_release);
  }
  /// The same, but keeps an earlier reason.
  void come_first(std::string_view reason) {
    const std::lock_guard lock(mutex_);
    if (come_.load(std::memory_order_relaxed)) return;
    reason_ = reason;
    come_.store(true, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> come_{false};
};

}  // namespace parx::detail
