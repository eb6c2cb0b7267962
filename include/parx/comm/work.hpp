// work: the handle of an asynchronous operation.
//
// It borrows the caller's buffers until wait() returns. The destructor waits too, at most until the
// operation's deadline: otherwise the operation could write to memory that has been freed. Where an
// exception destroys it, and the operation does not move, the destructor ends the job instead: the
// other ranks wait for what this one will not do any more, and are told of the exception. (But a
// stopped_by_signal is thrown by all ranks, which have all issued the operation.) The same holds
// for wait() and for blocking calls in destructors that run because of an exception.
#pragma once

#include <exception>
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

  /// Blocks until the operation is done; throws its parx::error. A second call does nothing.
  void wait();
  /// Whether wait() would return (or throw) at once. Never blocks; if the operation is not done,
  /// the thread yields its core once.
  [[nodiscard]] bool test();
  /// Of an async_recv_any, after wait(): the sender's rank.
  [[nodiscard]] int source_rank() const noexcept { return source_rank_; }

 private:
  void settle() noexcept;
  /// Does not throw the operation's error.
  void wait_for_end() noexcept;

  std::shared_ptr<detail::group_core> group_;
  std::unique_ptr<detail::call> request_;
  int source_rank_ = -1;
  int exceptions_ = std::uncaught_exceptions();  ///< where it was issued
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/detail/work_impl.hpp>
#endif
