// sole_user: finds two threads that use a group at the same time.
//
// A thread leaves its mark for as long as it is in a call, by plain stores: a locked instruction
// would wait for what the call has just written. So a thread that comes while another is in a call
// is refused, except within the some 100 ns that a store takes to another core. Two threads which
// keep using one group are found sooner or later.
// Threads: safe from any.
#pragma once

#include <atomic>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class sole_user {
 public:
  /// From construction to destruction this thread is in a call. One in another does no harm.
  class stay {
   public:
    /// Calls refuse(), which throws, while another thread is in a call.
    template <typename Refuse>
    stay(sole_user& place, Refuse refuse) : place_(place) {
      const void* const inside = place.inside_.load(std::memory_order_relaxed);
      if (inside == this_thread()) return;
      if (inside != nullptr) [[unlikely]] refuse();
      place.inside_.store(this_thread(), std::memory_order_relaxed);
      outermost_ = true;
    }
    ~stay() {
      if (outermost_ && place_.inside_.load(std::memory_order_relaxed) == this_thread()) {
        place_.inside_.store(nullptr, std::memory_order_relaxed);
      }
    }
    stay(const stay&) = delete;
    stay& operator=(const stay&) = delete;

   private:
    sole_user& place_;
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
