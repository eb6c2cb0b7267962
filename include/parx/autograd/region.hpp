// backward_region: a part of the model that is notified when backward enters and leaves it.
//
// Nodes of the graph carry the number of the region in which they were made (current_region), and
// backward notifies a region before it runs its nodes, and after them. So a wrapper can keep the
// values of a part in memory only while that part computes (fsdp), whatever the types of its inputs
// and results, for any number of forward passes and graphs, and in a recomputation too. Numbers are
// never reused: a graph may outlive its regions, and backward through it is a usage_error then.
// Threads: a region is notified on the thread that runs backward; numbers may be made on any.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

class backward_region {
 public:
  virtual ~backward_region() = default;
  /// Nodes of this region run next. May block, and throw; backward passes the exception on.
  virtual void enter_backward() = 0;
  /// Nodes of `next` run next; null if those are in no region, or the pass has ended or failed.
  virtual void leave_backward(const backward_region* next) noexcept = 0;
};

using region_number = std::uint32_t;  // 0: none

/// All regions of the process.
class region_table {
 public:
  [[nodiscard]] static region_table& instance() {
    static region_table table;
    return table;
  }
  [[nodiscard]] region_number add(backward_region& region) {
    const std::lock_guard lock(mutex_);
    regions_.emplace(++last_, &region);
    return last_;
  }
  void remove(region_number number) noexcept {
    const std::lock_guard lock(mutex_);
    regions_.erase(number);
  }
  /// Null for number 0, and for a region that has been destroyed.
  [[nodiscard]] backward_region* find(region_number number) {
    if (number == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(number);
    return found == regions_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<region_number, backward_region*> regions_;
  region_number last_ = 0;
};

/// The region of the nodes that this thread makes.
[[nodiscard]] inline region_number& current_region() noexcept {
  thread_local region_number current = 0;
  return current;
}

/// Nodes that this thread makes meanwhile are in this region.
class region_scope {
 public:
  explicit region_scope(region_number number) noexcept
      : outer_(std::exchange(current_region(), number)) {}
  ~region_scope() { current_region() = outer_; }
  region_scope(const region_scope&) = delete;
  region_scope& operator=(const region_scope&) = delete;

 private:
  const region_number outer_;
};

/// The region that this thread's backward pass is in. A nested pass (of a recomputation) starts in
/// the region of the outer one, and ends there.
class region_walk {
 public:
  region_walk() noexcept : outer_(here()) {}
  /// After a failed pass: leaves its region.
  ~region_walk() {
    if (here() == outer_) return;
    if (backward_region* const left = region_table::instance().find(here())) {
      left->leave_backward(nullptr);
    }
    here() = outer_;
  }
  region_walk(const region_walk&) = delete;
  region_walk& operator=(const region_walk&) = delete;

  void go_to(region_number number) {
    if (number != here()) change_to(number);
  }
  void end() { go_to(outer_); }

 private:
  [[nodiscard]] static region_number& here() noexcept {
    thread_local region_number number = 0;
    return number;
  }
  [[gnu::noinline]] static void change_to(region_number number) {
    backward_region* const left = region_table::instance().find(here());
    backward_region* const next = region_table::instance().find(number);
    require(number == 0 || next != nullptr,
            "backward reaches operations on a model's values that are gone: the wrapper (fsdp) "
            "that had them has been destroyed, or the gathered() scope in which they were computed "
            "has ended. Call backward() before");
    if (left != nullptr) left->leave_backward(next);
    here() = number;
    if (next != nullptr) next->enter_backward();
  }

  region_number outer_;
};

/// The number of a region while this object lives. The region is borrowed.
class region_registration {
 public:
  explicit region_registration(backward_region& region)
      : number_(region_table::instance().add(region)) {}
  ~region_registration() { region_table::instance().remove(number_); }
  region_registration(const region_registration&) = delete;
  region_registration& operator=(const region_registration&) = delete;

  [[nodiscard]] region_number number() const noexcept { return number_; }

 private:
  region_number number_;
};

}  // namespace parx
