// inline_groups: the groups whose asynchronous operations one thread moves on by itself
// (progress_mode::inline_poll).
//
// A thread that waits in one of them moves the others on as well: ranks may then wait for theirs in
// different orders. A group is in the list of the thread that last issued an asynchronous operation
// of it. It locks what it does from then on, so it may be handed to another thread at any time.
// Threads: a group is added by its thread and removed by any; the others belong to the list's own.
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
    /// Moves what can be moved without waiting. `pending`: there is something, but nothing moved.
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
  /// Afterwards it is not used any more.
  void remove(group& gone) {
    const std::lock_guard lock(mutex_);
    std::erase(groups_, &gone);
  }

  /// Moves all but `own` on, and returns the liveliest state of them.
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
