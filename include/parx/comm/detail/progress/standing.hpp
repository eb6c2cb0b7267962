// standing: how far this rank is in each of its groups, for the proof of a deadlock.
//
// A rank that is stuck in one group publishes this for its other groups, too: whether it has
// entered the call that another rank waits in, and how many messages it has sent there.
// Threads: the counters are written by the threads that use the group, and read by any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <parx/comm/detail/progress/notice.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class group_standing {
 public:
  group_standing(std::uint64_t group, const links& network)
      : group_(group), network_(network) {}
  ~group_standing() { delete[] sent_.load(); }
  group_standing(const group_standing&) = delete;
  group_standing& operator=(const group_standing&) = delete;

  [[nodiscard]] std::uint64_t group() const noexcept { return group_; }

  /// Collectives issued. One thread writes at a time: no locked instruction is needed.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(relaxed); }
  void add_call() noexcept { calls_.store(calls() + 1, relaxed); }

  /// For the driving thread.
  void add_message_to(int peer) {
    counter* all = sent_.load(relaxed);
    if (all == nullptr) {
      all = new counter[static_cast<std::size_t>(network_.size())]{};
      sent_.store(all, std::memory_order_release);
    }
    counter& found = all[peer];
    found.store(found.load(relaxed) + 1, relaxed);
  }

  /// A thread drives the group's progress.
  [[nodiscard]] bool is_driven() const noexcept { return driven_.load(relaxed); }
  void set_driven(bool now) noexcept { driven_.store(now, relaxed); }

  void describe(notice& mine) const {
    mine.calls.push_back({group_, calls(), 1});
    const counter* const all = sent_.load(std::memory_order_acquire);
    if (all == nullptr) return;
    for (int peer = 0; peer < network_.size(); ++peer) {
      if (const auto count = all[peer].load(relaxed); count > 0) {
        mine.sent.push_back({group_, network_.job_rank(peer), count});
      }
    }
  }

 private:
  using counter = std::atomic<std::uint32_t>;
  static constexpr auto relaxed = std::memory_order_relaxed;

  const std::uint64_t group_;
  const links& network_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<counter*> sent_{nullptr};  ///< by receiver; null before the first message
  std::atomic<bool> driven_{false};
};

/// The groups of one rank that descend from the same first one.
class groups_of_rank {
 public:
  static constexpr std::size_t most_gone = 64;  ///< groups that have ended and are remembered

  void add(const group_standing& next) {
    const std::lock_guard lock(mutex_);
    all_.push_back(&next);
  }
  void remove(const group_standing& gone) {
    const std::lock_guard lock(mutex_);
    std::erase(all_, &gone);
    if (gone_.calls.size() < most_gone) gone.describe(gone_);
    else gone_.has_all_groups = false;
  }
  /// Writes into a notice of group `own` how far the rank is there and in each group that no thread
  /// drives. Those that are driven have notices of their own, or will be stuck soon.
  void describe(const group_standing& own, notice& mine) const {
    const std::lock_guard lock(mutex_);
    mine.has_all_groups = gone_.has_all_groups;
    mine.calls = gone_.calls;
    mine.sent = gone_.sent;
    for (const group_standing* each : all_) {
      if (each == &own || !each->is_driven()) each->describe(mine);
      else mine.calls.push_back({.group = each->group()});
    }
  }

 private:
  mutable std::mutex mutex_;
  std::vector<const group_standing*> all_;
  notice gone_{.has_all_groups = true};  ///< the groups that were destroyed
};

}  // namespace parx::detail
