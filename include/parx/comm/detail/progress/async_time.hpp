// async_time: how long asynchronous collectives have run.
//
// Blocking ones are not counted: their callers can measure them, and small ones save reading a
// clock. The thread that drives the group starts and stops it; any thread may read it.
#pragma once

#include <atomic>
#include <chrono>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class async_time {
 public:
  void start() noexcept { since_ = clock::now(); }
  void stop() noexcept {
    total_.fetch_add((clock::now() - since_).count(), std::memory_order_relaxed);
  }
  [[nodiscard]] double seconds() const noexcept {
    const clock::duration total(total_.load(std::memory_order_relaxed));
    return std::chrono::duration<double>(total).count();
  }

 private:
  using clock = std::chrono::steady_clock;
  clock::time_point since_{};
  std::atomic<clock::rep> total_{0};
};

}  // namespace parx::detail
