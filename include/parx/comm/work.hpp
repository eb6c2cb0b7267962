// work: the handle of an asynchronous operation.
//
// It borrows the caller's buffers until wait() returns. Its destructor waits as well: a stall that
// the deadline bounds is better than memory that changes under somebody's hands.
#pragma once

#include <exception>
#include <memory>
#include <utility>

#include <parx/comm/detail/progress/group_core.hpp>

namespace parx::inline PARX_ABI {

class [[nodiscard]] work {
 public:
  work() = default;
  work(std::shared_ptr<detail::group_core> group, std::unique_ptr<detail::call> request)
      : group_(std::move(group)), request_(std::move(request)) {}
  work(work&&) noexcept = default;
  work& operator=(work&& other) noexcept {
    if (this != &other) {
      settle();
      group_ = std::move(other.group_);
      source_rank_ = other.source_rank_;
      request_ = std::move(other.request_);
    }
    return *this;
  }
  ~work() { settle(); }

  /// Blocks until the operation is done; throws its parx::error. Does nothing the second time.
  void wait() {
    if (request_ == nullptr) return;
    group_->require_here();
    group_->wait(*request_);
    const auto finished = std::move(request_);
    source_rank_ = finished->peer;
    finished->rethrow();
  }
  /// Whether wait() would return (or throw) at once. Never blocks; where it would not, the thread
  /// hands its core on for a moment.
  [[nodiscard]] bool test() {
    if (request_ == nullptr) return true;
    group_->require_here();
    return group_->test(*request_);
  }
  /// Of an async_recv_any, after wait(): the rank whose message it was.
  [[nodiscard]] int source_rank() const noexcept { return source_rank_; }

 private:
  void settle() noexcept {
    // In a forked process nobody moves it on, and nothing is written to its buffer.
    if (request_ != nullptr && group_->is_here()) group_->wait(*request_);
    request_ = nullptr;
  }

  std::shared_ptr<detail::group_core> group_;
  std::unique_ptr<detail::call> request_;
  int source_rank_ = -1;
};

}  // namespace parx
