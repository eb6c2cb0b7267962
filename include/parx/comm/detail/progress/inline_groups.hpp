// inline_groups: the groups on whose asynchronous operations one thread makes progress
// (progress_mode::inline_poll).
//
// A thread that waits in one group also makes progress on the others, so ranks may wait for their
// groups in different orders. A group is in the list of the thread that last issued an asynchronous
// operation on it. From then on it locks its calls, so it may move to another thread at any time.
// Threads: a group is added by the list's thread and removed by any; only that thread calls the
// other functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class inline_groups {
 public:
  enum class state : std::uint8_t { idle, pending, moved };

  class group {
   public:
    /// Makes progress without waiting. `pending`: operations are pending, but nothing has moved.
    virtual state move_on() = 0;

   protected:
    ~group() = default;
  };

  [[nodiscard]] static const std::shared_ptr<inline_groups>& of_this_thread() {
    static thread_local const auto own = std::make_shared<inline_groups>();
    return own;
  }

  void add(group& next) {
    const std::lock_guard lock(mutex_);
    groups_.push_back(&next);
  }
  /// When this returns, no thread uses the group any more.
  void remove(group& gone) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, &gone);
  }

  /// Makes progress on all groups but `own`; returns the largest of their states.
  state move_on_all_but(const group& own) {
    const std::lock_guard lock(mutex_);
    state all = state::idle;
    for (group* each : groups_) {
      if (each != &own) all = std::max(all, each->move_on());
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::vector<group*> groups_;
};

}  // namespace parx::detail
