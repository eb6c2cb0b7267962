// sleepers: the groups of one process that sleep, and how each is woken by itself.
//
// A sleeper borrows an eventfd for as long as it sleeps: a process holds as many of them as it ever
// had threads asleep at a time, not one a group.
// Threads: safe from any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include <parx/core/descriptor.hpp>

namespace parx::inline PARX_ABI::detail {

class sleepers {
 public:
  /// A group falls asleep: what rouse() will make readable. -1 where no descriptor is left: links
  /// say so, and a sleep that nobody can end is short.
  [[nodiscard]] int fall_asleep(std::uint64_t group) {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) spare_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    spare_.reserve(spare_.size() + asleep_.size());  // wake_up() may not fail
    asleep_.push_back({group, std::move(spare_.back()), false});
    spare_.pop_back();
    return asleep_.back().alarm.get();
  }
  void wake_up(std::uint64_t group) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = find(group);
    if (found == asleep_.end()) return;
    if (found->roused) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(found->alarm.get(), &count, sizeof count);
    }
    if (found->alarm.valid()) spare_.push_back(std::move(found->alarm));
    asleep_.erase(found);
  }
  /// Does nothing to a group that is up.
  void rouse(std::uint64_t group) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = find(group);
    if (found == asleep_.end() || std::exchange(found->roused, true)) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto put = ::write(found->alarm.get(), &one, sizeof one);
  }

 private:
  struct sleeper {
    std::uint64_t group;
    descriptor alarm;
    bool roused;
  };

  [[nodiscard]] std::vector<sleeper>::iterator find(std::uint64_t group) noexcept {
    return std::find_if(asleep_.begin(), asleep_.end(),
                        [group](const sleeper& each) { return each.group == group; });
  }

  std::mutex mutex_;
  std::vector<sleeper> asleep_;
  std::vector<descriptor> spare_;
};

/// A group is asleep for as long as this lives.
class sleep_scope {
 public:
  sleep_scope(sleepers& all, std::uint64_t group)
      : all_(all), group_(group), alarm_(all.fall_asleep(group)) {}
  ~sleep_scope() { all_.wake_up(group_); }
  sleep_scope(const sleep_scope&) = delete;
  sleep_scope& operator=(const sleep_scope&) = delete;

  [[nodiscard]] int alarm() const noexcept { return alarm_; }

 private:
  sleepers& all_;
  std::uint64_t group_;
  int alarm_;
};

}  // namespace parx::detail
