// work: the handle of an asynchronous operation.
//
// It borrows the caller's buffers until wait() returns. Its destructor waits as well: a stall that
// the deadline bounds is better than memory that changes under somebody's hands.
#pragma once

#include <memory>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

namespace detail {
class group_core;
struct call;
}  // namespace detail

class [[nodiscard]] work {
 public:
  work();
  work(std::shared_ptr<detail::group_core> group, std::unique_ptr<detail::call> request);
  work(work&&) noexcept;
  work& operator=(work&& other) noexcept;
  ~work();

  /// Blocks until the operation is done; throws its parx::error. Does nothing the second time.
  void wait();
  /// Whether wait() would return (or throw) at once. Never blocks; where it would not, the thread
  /// hands its core on for a moment.
  [[nodiscard]] bool test();
  /// Of an async_recv_any, after wait(): the rank whose message it was.
  [[nodiscard]] int source_rank() const noexcept { return source_rank_; }

 private:
  void settle() noexcept;

  std::shared_ptr<detail::group_core> group_;
  std::unique_ptr<detail::call> request_;
  int source_rank_ = -1;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/work_impl.hpp>
#endif
