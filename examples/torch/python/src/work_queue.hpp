// work_queue: the collectives of a group, which run one after the other in the order of issue.
//
// A thread that waits for one runs it, and those before it, itself: there is no other thread to
// wake up, which is most of the time that a small all_reduce takes in PyTorch's other backends.
// What nobody waits for is run by the queue's own thread: at once where a future or is_completed()
// was asked for, since DDP's hooks chain on those, else after `patience`. Threads: safe from any.
// Callbacks of futures run without the queue's lock, and may issue more.
#pragma once

#include <sys/timerfd.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensors.hpp"

namespace parx_torch {

using std::chrono::milliseconds;
using future_ptr = c10::intrusive_ptr<c10::ivalue::Future>;

inline future_ptr new_future() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}
inline void complete(c10::ivalue::Future& future, const std::exception_ptr& failure,
                     const tensors& results) {
  if (failure != nullptr) future.setError(failure);
  else future.markCompleted(c10::IValue(results));
}

class work_queue;

/// One collective of a queue.
class collective_work final : public c10d::Work {
 public:
  /// `run` blocks until the collective is over, at most for the time that it is given.
  using function = std::function<void(milliseconds)>;
  collective_work(std::shared_ptr<work_queue> queue, int rank, c10d::OpType type, tensors results,
                  milliseconds limit, function run)
      : c10d::Work(rank, type),
        queue_(std::move(queue)),
        results_(std::move(results)),
        limit_(limit),
        run_(std::move(run)) {}

  bool isCompleted() override;
  bool isSuccess() const override { return done_.load() && failure_ == nullptr; }
  std::exception_ptr exception() const override { return failure_; }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(milliseconds timeout) override;
  std::vector<Tensor> result() override { return results_; }
  future_ptr getFuture() override;

 private:
  friend class work_queue;
  void execute(milliseconds at_most) noexcept {
    try {
      run_(at_most > milliseconds(0) ? std::min(at_most, limit_) : limit_);
    } catch (...) {
      failure_ = std::current_exception();
    }
    run_ = nullptr;
  }

  const std::shared_ptr<work_queue> queue_;
  const tensors results_;
  const milliseconds limit_;
  function run_;
  std::exception_ptr failure_;  ///< written before done_
  std::atomic<bool> done_{false};
  future_ptr future_;  ///< with the queue's lock
};

class work_queue : public std::enable_shared_from_this<work_queue> {
 public:
  using item = c10::intrusive_ptr<collective_work>;

  // A timer that is set again costs a system call of 200 ns. A condition variable with a time limit
  // would wake its thread once for each limit that has passed, in the middle of later collectives.
  work_queue() : timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    parx::require(timer_ >= 0, "parx: this process has no descriptor left for a timer");
  }
  work_queue(const work_queue&) = delete;
  work_queue& operator=(const work_queue&) = delete;
  ~work_queue() { ::close(timer_); }

  /// To be called before it is destroyed: returns when all that was issued has run. Does nothing in
  /// a forked process, which has no such thread.
  void close() {
    if (owner_ != ::getpid()) {
      if (thread_.joinable()) thread_.detach();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    set_timer(std::chrono::nanoseconds(1));
    if (!thread_.joinable()) return;
    // A future's callback may have had the last reference to the group.
    if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
    else thread_.join();
  }

  void submit(item work) {
    {
      const std::lock_guard lock(mutex_);
      parx::require(!stopping_, "parx: this process group has left its job");
      if (!thread_.joinable()) {
        thread_ = std::thread([self = shared_from_this()] { self->run_what_nobody_waits_for(); });
      }
      queue_.push_back(std::move(work));
    }
    set_timer(patience);
  }
  void hurry() { set_timer(std::chrono::nanoseconds(1)); }

  /// Returns when `work` is done; false after `timeout` where another thread runs it meanwhile.
  bool finish(const collective_work& work, milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + timeout;
    while (!work.done_.load()) {
      if (!running_) run_front(lock, timeout);
      else if (timeout == milliseconds(0)) changed_.wait(lock);
      else if (changed_.wait_until(lock, until) == std::cv_status::timeout) return false;
    }
    return true;
  }

  future_ptr future_of(collective_work& work) {
    {
      const std::lock_guard lock(mutex_);
      if (work.future_ != nullptr) return work.future_;
      work.future_ = new_future();
      if (!work.done_.load()) {
        hurry();
        return work.future_;
      }
    }
    complete(*work.future_, work.failure_, work.results_);
    return work.future_;
  }

 private:
  static constexpr std::chrono::microseconds patience{200};

  void set_timer(std::chrono::nanoseconds after) {
    const itimerspec when{{0, 0}, {0, static_cast<long>(after.count())}};
    ::timerfd_settime(timer_, 0, &when, nullptr);
  }
  /// Locked on entry and exit.
  void run_front(std::unique_lock<std::mutex>& lock, milliseconds at_most = milliseconds(0)) {
    const item work = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    work->execute(at_most);
    lock.lock();
    running_ = false;
    work->done_.store(true);
    const future_ptr future = work->future_;
    lock.unlock();
    changed_.notify_all();
    if (future != nullptr) complete(*future, work->failure_, work->results_);
    lock.lock();
  }
  void run_what_nobody_waits_for() {
    for (;;) {
      std::uint64_t times = 0;
      if (::read(timer_, &times, sizeof times) < 0 && errno != EINTR) return;
      std::unique_lock lock(mutex_);
      while (!queue_.empty()) {
        if (running_) changed_.wait(lock);
        else run_front(lock);
      }
      if (stopping_) return;
    }
  }

  const pid_t owner_ = ::getpid();
  const int timer_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<item> queue_;
  bool running_ = false, stopping_ = false;
  std::thread thread_;
};

inline bool collective_work::isCompleted() {
  if (!done_.load()) queue_->hurry();
  return done_.load();
}
inline bool collective_work::wait(milliseconds timeout) {
  parx::require(queue_->finish(*this, timeout), "parx: {} was not over after {} ms",
                c10d::opTypeToString(opType_), timeout.count());
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  return true;
}
inline future_ptr collective_work::getFuture() { return queue_->future_of(*this); }

}  // namespace parx_torch
