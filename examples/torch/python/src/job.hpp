// job: the ranks of one init_process_group, and what its groups have open.
//
// PyTorch's store serves for one line, by which rank 0 tells where parx's own store is: that
// notices ranks which end, and its clients prove that they know the job's secret. Groups of
// new_group() are subgroups of the first: they need no store and no connection until they are used.
#pragma once

#include <unistd.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#undef CHECK

#include <parx/comm.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/host_name.hpp>
#include <parx/launch/init.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "message_work.hpp"
#include "work_queue.hpp"

namespace parx_torch {

using store_ptr = c10::intrusive_ptr<c10d::Store>;

/// The line of rank 0, by a key of PyTorch's store that is new for each start: torchrun's store
/// outlives one. Only asks and sleeps, since a blocking call of a TCPStore keeps its other callers
/// out.
inline std::string share_line(c10d::Store& store, int size, milliseconds limit,
                              const std::string& of_rank_0) {
  const auto start = (store.add("parx/ranks", 1) - 1) / size;
  const std::string key = "parx/rank 0/" + std::to_string(start);
  if (!of_rank_0.empty()) {
    store.set(key, std::vector<std::uint8_t>(of_rank_0.begin(), of_rank_0.end()));
    return of_rank_0;
  }
  const auto until = std::chrono::steady_clock::now() + limit;
  for (auto nap = std::chrono::microseconds(200); !store.check({key});
       nap = std::min(2 * nap, std::chrono::microseconds(20'000))) {
    if (std::chrono::steady_clock::now() > until) {
      parx::throw_error(parx::errc::rendezvous_failed,
                        "rank 0 has not come to init_process_group within {} s; see its output",
                        limit.count() / 1000);
    }
    std::this_thread::sleep_for(nap);
  }
  const auto line = store.get(key);
  return {line.begin(), line.end()};
}

/// A host that all ranks can reach: that of a TCPStore, else this one, which rank 0's line names.
inline std::string host_of(store_ptr store) {
  while (auto* prefix = dynamic_cast<c10d::PrefixStore*>(store.get())) {
    store = prefix->getUnderlyingStore();
  }
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(store.get());
  return tcp != nullptr ? tcp->getHost() : parx::detail::host_name();
}

class job;

/// What one process group of PyTorch has of parx's: a group for collectives, and one for messages,
/// which other threads send and receive meanwhile.
class members {
 public:
  members(std::shared_ptr<job> of, std::span<const int> ranks, const std::string& name,
          parx::call_site site);
  ~members() { close(); }
  members(const members&) = delete;
  members& operator=(const members&) = delete;

  [[nodiscard]] parx::process_group& collectives() { return *collectives_; }
  [[nodiscard]] const std::shared_ptr<work_queue>& queue() const { return queue_; }

  /// Begins a message by issue(group).
  template <typename Issue>
  [[nodiscard]] std::shared_ptr<message> begin_message(const Tensor& whole, Issue issue) {
    const std::lock_guard lock(mutex_);
    parx::require(messages_.has_value(), "parx: this process group has left its job");
    while (!pending_.empty() && pending_.front()->is_done()) pending_.pop_front();
    const Tensor flat = whole.detach().contiguous();
    // Kept here, since PyTorch's programs may drop the handle of a message that is under way.
    pending_.push_back(std::make_shared<message>(whole, flat, issue(*messages_, view_of(flat))));
    return pending_.back();
  }

  /// Ends what is under way and leaves the groups. A second call does nothing.
  void close();

 private:
  std::shared_ptr<job> job_;
  std::optional<parx::process_group> collectives_;
  std::optional<parx::process_group> messages_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<message>> pending_;
  std::shared_ptr<work_queue> queue_ = std::make_shared<work_queue>();
};

class job {
 public:
  /// Collective over the ranks. Throws parx::error where they do not come within `limit`.
  job(const store_ptr& store, int rank, int size, milliseconds limit) {
    const auto local = [&](const char* name) -> std::optional<int> {
      const char* const all = std::getenv("WORLD_SIZE");
      const char* const text = std::getenv(name);
      if (text == nullptr || all == nullptr || std::atoi(all) != size) return std::nullopt;
      return std::atoi(text);
    };
    parx::launch_env self;
    self.rank = rank;
    self.world_size = size;
    self.local_rank = local("LOCAL_RANK");
    self.local_world_size = local("LOCAL_WORLD_SIZE");
    self.master_host = host_of(store);
    self.share_line = [&](const std::string& line) {
      return parx_torch::share_line(*store, size, limit, line);
    };
    parx::init_options options;
    options.group.timeout = limit;
    options.rendezvous_timeout = limit;
    options.job = &self;
    world_.reset(new parx::world(parx::init(std::move(options))));
  }

  [[nodiscard]] parx::world& world() {
    parx::require(world_ != nullptr, "parx: this process has left the job of the group");
    return *world_;
  }
  void add(const std::shared_ptr<members>& group) { groups_.push_back(group); }

  /// For the end of the program, which may still refer to groups. With a reason the program has
  /// failed: the other ranks' calls end with it.
  void leave(std::string_view reason) {
    if (world_ == nullptr || owner_ != ::getpid()) return;
    if (!reason.empty()) world_->abort(parx::formatted("rank {}: {}", world_->rank(), reason));
    for (const auto& each : groups_) {
      if (const auto group = each.lock()) group->close();
    }
    world_.reset();
  }

 private:
  const pid_t owner_ = ::getpid();
  std::unique_ptr<parx::world> world_;
  std::vector<std::weak_ptr<members>> groups_;
};

inline members::members(std::shared_ptr<job> of, std::span<const int> ranks,
                        const std::string& name, parx::call_site site)
    : job_(std::move(of)) {
  collectives_.emplace(job_->world().subgroup(ranks, {.name = name}, site));
  messages_.emplace(job_->world().subgroup(ranks, {.name = name + ", messages"}, site));
}

inline void members::close() {
  queue_->close();
  std::deque<std::shared_ptr<message>> pending;
  {
    const std::lock_guard lock(mutex_);
    if (!messages_) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    for (const auto& each : pending_) {
      while (!each->is_done() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(milliseconds(1));
      }
      if (!each->is_done()) messages_->abort("the program ended with a message under way");
    }
    pending.swap(pending_);
    messages_.reset();
  }
  pending.clear();
  collectives_.reset();
}

}  // namespace parx_torch
