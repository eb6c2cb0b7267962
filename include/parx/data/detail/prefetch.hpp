// ordered_prefetch: the results of produce(0), produce(1), ..., computed by worker threads and
// delivered in order.
//
// Invariant: a worker takes the lowest number not yet taken, and only while it is less than `depth`
// ahead of the consumer; so memory is bounded and the order does not depend on the number of
// workers. An exception is delivered in place of its result. No thread spins: workers sleep while
// the window is full, the consumer while its result is missing. One consumer thread. The destructor
// stops the workers, waiting only for calls already begun; in a forked child it does not wait.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <parx/core/own_process.hpp>
#include <parx/core/start_thread.hpp>

namespace parx::inline PARX_ABI::data::detail {

template <typename Result>
class ordered_prefetch {
 public:
  using producer = std::function<Result(std::size_t)>;

  /// `produce` is called once for each number below `count`, from `workers` threads at a time, or
  /// from next() where `workers` is 0.
  ordered_prefetch(std::size_t count, std::size_t workers, std::size_t depth, producer produce)
      : count_(count), produce_(std::move(produce)), slots_(workers > 0 ? depth : 0) {
    try {
      for (std::size_t i = 0; i < std::min(workers, count); ++i) {
        threads_.push_back(parx::detail::start_thread("of a loader", [this] { work(); }));
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ordered_prefetch() {
    if (process_.is_this()) {
      stop();
      return;
    }
    // A forked child has no workers. Destroying a condition variable would wait for its waiters.
    for (std::thread& thread : threads_) thread.detach();
    parx::detail::keep_for_good(sync_.release());
  }
  ordered_prefetch(const ordered_prefetch&) = delete;
  ordered_prefetch& operator=(const ordered_prefetch&) = delete;

  /// The next result, or nullopt after the last. Blocks until it is there; throws what produce()
  /// threw, after which there are no more results.
  std::optional<Result> next() {
    if (delivered_ == count_) return std::nullopt;
    if (slots_.empty()) {
      const std::size_t number = std::exchange(delivered_, count_);
      Result result = produce_(number);
      delivered_ = number + 1;
      return result;
    }
    slot taken;
    {
      std::unique_lock lock(sync_->mutex);
      slot& wanted = slots_[delivered_ % slots_.size()];
      sync_->result_ready.wait(lock, [&] { return wanted.result || wanted.failure; });
      taken = std::exchange(wanted, slot{});
      if (taken.failure) stopping_ = true;
      delivered_ = taken.failure ? count_ : delivered_ + 1;
    }
    sync_->window_moved.notify_one();
    if (taken.failure) {
      stop();
      std::rethrow_exception(taken.failure);
    }
    return std::move(taken.result);
  }

 private:
  struct slot {
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  void work() {
    std::unique_lock lock(sync_->mutex);
    for (;;) {
      sync_->window_moved.wait(lock, [&] {
        return stopping_ || begun_ == count_ || begun_ < delivered_ + slots_.size();
      });
      if (stopping_ || begun_ == count_) return;
      const std::size_t number = begun_++;
      lock.unlock();
      slot made;
      try {
        made.result.emplace(produce_(number));
      } catch (...) {
        made.failure = std::current_exception();
      }
      lock.lock();
      slots_[number % slots_.size()] = std::move(made);
      sync_->result_ready.notify_one();
    }
  }

  void stop() noexcept {
    {
      const std::lock_guard lock(sync_->mutex);
      stopping_ = true;
    }
    sync_->window_moved.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  struct synchronization {
    std::mutex mutex;
    std::condition_variable window_moved;
    std::condition_variable result_ready;
  };

  const parx::detail::own_process process_;
  const std::size_t count_;
  const producer produce_;
  std::unique_ptr<synchronization> sync_ = std::make_unique<synchronization>();
  std::vector<slot> slots_;
  std::size_t begun_ = 0;
  std::size_t delivered_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace parx::data::detail
