// concurrent_use: detects two threads that use a group at the same time.
//
// A thread marks the group while it is in a call, by plain stores: a locked instruction would stall
// until the call's own stores have drained. A thread that enters while another is in a call is
// refused, except within the roughly 100 ns that a store takes to reach another core. Two threads
// that keep using one group are detected sooner or later.
// Threads: safe from any.
#pragma once

#include <atomic>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class concurrent_use {
 public:
  /// While it exists, this thread is in a call. May be nested.
  class guard {
   public:
    /// Calls refuse(), which throws, while another thread is in a call.
    template <typename Refuse>
    guard(concurrent_use& place, Refuse refuse) : place_(place) {
      const void* const inside = place.inside_.load(std::memory_order_relaxed);
      if (inside == this_thread()) return;
      if (inside != nullptr) [[unlikely]] refuse();
      place.inside_.store(this_thread(), std::memory_order_relaxed);
      outermost_ = true;
    }
    ~guard() {
      if (outermost_ && place_.inside_.load(std::memory_order_relaxed) == this_thread()) {
        place_.inside_.store(nullptr, std::memory_order_relaxed);
      }
    }
    guard(const guard&) = delete;
    guard& operator=(const guard&) = delete;

   private:
    concurrent_use& place_;
    bool outermost_ = false;
  };

 private:
  [[nodiscard]] static const void* this_thread() noexcept {
    static thread_local constinit char mark = 0;
    return &mark;
  }

  std::atomic<const void*> inside_{nullptr};
};

}  // namespace parx::detail
