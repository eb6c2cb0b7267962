// sleeping_groups: the groups of one process that sleep, each woken through an eventfd of its own.
//
// A group borrows an eventfd while it sleeps, so a process holds as many of them as it ever had
// threads asleep at the same time, not one per group. Threads: safe from any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <parx/core/descriptor.hpp>
#include <parx/core/find.hpp>

namespace parx::inline PARX_ABI::detail {

class sleeping_groups {
 public:
  /// Returns the descriptor that wake() makes readable. -1 where the process has no descriptor
  /// left: then only the sleep's timeout ends it.
  [[nodiscard]] int begin_sleep(std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) spare_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    spare_.reserve(spare_.size() + asleep_.size());  // end_sleep() must not throw
    asleep_.push_back({group, std::move(spare_.back()), false});
    spare_.pop_back();
    return asleep_.back().event.get();
  }
  void end_sleep(std::uint64_t group) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = find(group);
    if (found == asleep_.end()) return;
    if (found->woken) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(found->event.get(), &count, sizeof count);
    }
    if (found->event.valid()) spare_.push_back(std::move(found->event));
    asleep_.erase(found);
  }
  /// Does nothing where the group does not sleep.
  void wake(std::uint64_t group) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = find(group);
    if (found == asleep_.end() || std::exchange(found->woken, true)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(found->event.get(), &one, sizeof one);
  }

 private:
  struct sleeper {
    std::uint64_t group;
    descriptor event;
    bool woken;
  };

  [[nodiscard]] std::vector<sleeper>::iterator find(std::uint64_t group) noexcept {
    return find_by(asleep_, &sleeper::group, group);
  }

  std::mutex mutex_;
  std::vector<sleeper> asleep_;
  std::vector<descriptor> spare_;
};

/// A group sleeps for the lifetime of this object.
class sleep_scope {
 public:
  sleep_scope(sleeping_groups& all, std::uint64_t group)
      : all_(all), group_(group), event_(all.begin_sleep(group)) {}
  ~sleep_scope() { all_.end_sleep(group_); }
  sleep_scope(const sleep_scope&) = delete;
  sleep_scope& operator=(const sleep_scope&) = delete;

  /// Becomes readable when the group is woken.
  [[nodiscard]] int descriptor() const noexcept { return event_; }

 private:
  sleeping_groups& all_;
  std::uint64_t group_;
  int event_;
};

}  // namespace parx::detail
