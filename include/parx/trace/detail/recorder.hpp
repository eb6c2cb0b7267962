// Where events are kept until they are written: one bounded ring per thread.
//
// A full ring drops its oldest event and counts it, so a trace of any length costs the memory of
// its last part only. Each ring has a mutex that its own thread takes without contention and the
// writer of the file for the time of one copy. Safe from any thread, from thread-local and static
// destructors too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/trace/detail/record.hpp>

namespace parx::inline PARX_ABI::trace::detail {

/// What one thread recorded, in no particular order.
struct thread_events {
  int tid = 0;
  std::string thread_name;
  std::vector<event> events;
};

class ring {
 public:
  /// `next` is the one after it in the recorder's list.
  ring(ring* next, int tid, std::string_view thread_name, std::size_t capacity)
      : next_ring(next), tid_(tid), thread_name_(thread_name), capacity_(capacity) {}

  ring* const next_ring;
  bool is_free = false;  ///< its thread has ended; under the recorder's mutex

  void push(const event& next) noexcept {
    const std::lock_guard lock(mutex_);
    if (events_.size() < capacity_) {
      try {
        events_.push_back(next);
      } catch (...) {  // no memory for the trace is no reason to end the program
        ++dropped_;
      }
      return;
    }
    events_[oldest_] = next;
    oldest_ = (oldest_ + 1) % capacity_;
    ++dropped_;
  }

  [[nodiscard]] int tid() const noexcept { return tid_; }
  void rename(std::string_view thread_name) {
    const std::lock_guard lock(mutex_);
    thread_name_ = thread_name;
  }
  [[nodiscard]] bool is_named(std::string_view thread_name) const {
    const std::lock_guard lock(mutex_);
    return thread_name_ == thread_name;
  }
  [[nodiscard]] bool empty() const {
    const std::lock_guard lock(mutex_);
    return events_.empty() && dropped_ == 0;
  }
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }
  [[nodiscard]] thread_events contents() const {
    const std::lock_guard lock(mutex_);
    return {.tid = tid_, .thread_name = thread_name_, .events = events_};
  }
  void clear(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    events_.clear();
    capacity_ = capacity;
    oldest_ = 0;
    dropped_ = 0;
  }

 private:
  mutable std::mutex mutex_;
  int tid_;
  std::string thread_name_;
  std::size_t capacity_;
  std::vector<event> events_;
  std::size_t oldest_ = 0;
  std::uint64_t dropped_ = 0;
};

/// Trivially destructible, so that it can still be read while a thread's destructors run.
struct thread_state {
  short_text<32> name;
  ring* mine = nullptr;
  bool ended = false;
};
inline constinit thread_local thread_state here{};

/// All rings of the process. A ring outlives its thread, and the next thread of the same name
/// continues it: a program that starts threads again and again keeps only as many rings as it ever
/// ran threads at once.
class recorder {
 public:
  /// Never destroyed: threads and static destructors may record until the process is gone.
  [[nodiscard]] static recorder& instance() {
    static recorder& the_recorder = *new recorder;
    return the_recorder;
  }

  /// Records on the calling thread's ring. The event is dropped when there is no memory for a ring,
  /// or when the thread is ending and has already returned its ring.
  static void record(const event& next) noexcept {
    try {
      if (ring* mine = ring_of_this_thread()) mine->push(next);
    } catch (...) {  // out of memory, as in ring::push
    }
  }

  /// Before the thread's first event this only notes the name, without a ring and without a lock.
  static void name_this_thread(std::string_view name) {
    here.name = short_text<32>(name);
    if (here.mine != nullptr) here.mine->rename(here.name.view());
  }

  /// The newest ring, at the front of the list. Rings are never removed, so that the list can be
  /// walked while threads record and start.
  [[nodiscard]] const ring* rings() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }
  [[nodiscard]] bool empty() const {
    const ring* each = rings();
    while (each != nullptr && each->empty()) each = each->next_ring;
    return each == nullptr;
  }
  /// Forgets all events; from now on a ring holds `capacity` of them.
  void clear(std::size_t capacity) {
    const std::lock_guard lock(mutex_);
    capacity_ = capacity;
    for (ring* each = first_; each != nullptr; each = each->next_ring) each->clear(capacity);
  }

 private:
  struct hand_back {
    hand_back() = default;
    hand_back(const hand_back&) = delete;
    hand_back& operator=(const hand_back&) = delete;
    ~hand_back() {
      here.ended = true;
      if (ring* mine = std::exchange(here.mine, nullptr)) instance().release(mine);
    }
  };

  [[nodiscard]] static ring* ring_of_this_thread() {
    if (here.mine == nullptr && !here.ended) {
      here.mine = instance().acquire(here.name.view());
      [[maybe_unused]] static thread_local const hand_back at_thread_end;
    }
    return here.mine;
  }

  [[nodiscard]] ring* acquire(std::string_view name) {
    const std::lock_guard lock(mutex_);
    for (ring* each = first_; each != nullptr; each = each->next_ring) {
      if (each->is_free && each->is_named(name)) {
        each->is_free = false;
        return each;
      }
    }
    const int tid = first_ == nullptr ? 0 : first_->tid() + 1;
    return first_ = new ring(first_, tid, name, capacity_);
  }
  void release(ring* mine) {
    const std::lock_guard lock(mutex_);
    mine->is_free = true;
  }

  mutable std::mutex mutex_;
  ring* first_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace parx::trace::detail
