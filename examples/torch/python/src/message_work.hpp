// message_work: a send or receive, which runs beside the collectives.
#pragma once

#include <parx/comm.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "work_queue.hpp"

namespace parx_torch {

/// parx's operation and its buffer: a copy where the tensor is not contiguous.
class message {
 public:
  message(Tensor whole, Tensor flat, parx::work running)
      : whole_(std::move(whole)), flat_(std::move(flat)), running_(std::move(running)) {}
  message(const message&) = delete;
  message& operator=(const message&) = delete;

  /// Never blocks: false also while a thread waits for it.
  [[nodiscard]] bool is_done() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    if (!ended_ && running_.test()) end();
    return ended_;
  }
  /// Throws its failure, each time.
  void wait() {
    const std::lock_guard lock(mutex_);
    if (!ended_) end();
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }
  [[nodiscard]] std::exception_ptr failure() { return is_done() ? failure_ : nullptr; }
  [[nodiscard]] const Tensor& tensor() const { return whole_; }
  [[nodiscard]] int source() const { return running_.source_rank(); }

  /// Completes `future` from a thread of its own: messages end in any order.
  static future_ptr future_of(const std::shared_ptr<message>& self) {
    const std::lock_guard lock(self->future_mutex_);
    if (self->future_ != nullptr) return self->future_;
    self->future_ = new_future();
    std::thread([self, future = self->future_] {
      std::exception_ptr failure;
      try {
        self->wait();
      } catch (...) {
        failure = std::current_exception();
      }
      complete(*future, failure, {self->whole_});
    }).detach();
    return self->future_;
  }

 private:
  /// Locked.
  void end() noexcept {
    try {
      running_.wait();
      put_back({whole_}, {flat_});
    } catch (...) {
      failure_ = std::current_exception();
    }
    ended_ = true;
  }

  const Tensor whole_, flat_;
  std::mutex mutex_;
  parx::work running_;
  bool ended_ = false;
  std::exception_ptr failure_;  ///< does not change once it has ended
  std::mutex future_mutex_;
  future_ptr future_;
};

class message_work final : public c10d::Work {
 public:
  message_work(int rank, c10d::OpType type, std::shared_ptr<message> of)
      : c10d::Work(rank, type), message_(std::move(of)) {}
  bool isCompleted() override { return message_->is_done(); }
  bool isSuccess() const override { return message_->is_done() && message_->failure() == nullptr; }
  std::exception_ptr exception() const override { return message_->failure(); }
  void synchronize() override { message_->wait(); }
  bool wait(milliseconds timeout) override {
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (timeout > milliseconds(0) && !message_->is_done()) {
      parx::require(std::chrono::steady_clock::now() < until, "parx: {} was not over after {} ms",
                    c10d::opTypeToString(opType_), timeout.count());
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    message_->wait();
    return true;
  }
  int sourceRank() const override { return message_->source(); }
  std::vector<Tensor> result() override { return {message_->tensor()}; }
  future_ptr getFuture() override { return message::future_of(message_); }

 private:
  const std::shared_ptr<message> message_;
};

}  // namespace parx_torch
