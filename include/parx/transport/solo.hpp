// solo_transport: a world of one rank. It has no links; wait() only waits for wake() from another
// thread of the process.
//
// Threads: wake() and abort() from any thread, the rest from the one that drives the group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/deadline.hpp>
#include <parx/core/formatted.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI {

class solo_transport final : public transport {
 public:
  solo_transport() : solo_transport(std::shared_ptr<state>(new state)) {}

  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }

  link& link_to(int peer, channel, std::chrono::milliseconds) override {
    throw_usage("rank {} in a world of one", peer);
  }

  void wait(const std::vector<link_interest>&, std::chrono::milliseconds limit) override {
    std::unique_lock lock(all_->mutex);
    all_->changed.wait_for(lock, limit, [&] { return all_->wakes != seen_; });
    seen_ = all_->wakes;
  }
  void wake() override {
    {
      const std::lock_guard lock(all_->mutex);
      ++all_->wakes;
    }
    all_->changed.notify_all();
  }
  [[nodiscard]] bool may_spin() const noexcept override { return false; }

  void abort(const failure_record& reason) noexcept override {
    {
      const std::lock_guard lock(all_->mutex);
      if (!all_->abort_reason) all_->abort_reason = reason;
    }
    wake();
  }
  void close() noexcept override {}
  std::optional<failure_record> abort_reason() override {
    const std::lock_guard lock(all_->mutex);
    return all_->abort_reason;
  }

  void post_notice(std::string_view) override {}
  std::vector<std::string> notices_of(int) override { return {}; }
  [[nodiscard]] bool has_ended(int) override { return false; }
  [[nodiscard]] std::string describe(int peer) override { return formatted("rank {}", peer); }
  [[nodiscard]] std::string host_of(int) override { return {}; }
  [[nodiscard]] int job_rank(int peer) const noexcept override { return peer; }

  [[nodiscard]] bool shares_memory() override { return true; }
  [[nodiscard]] std::vector<int> hosts() override { return {0}; }
  [[nodiscard]] shared_area share(std::size_t bytes, std::uint64_t id, deadline) override {
    static constexpr std::size_t line = 64;
    const std::size_t room = (bytes / line + 1) * line;
    const std::shared_ptr<void> memory(std::aligned_alloc(line, room), std::free);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory.get(), 0, room);
    return {std::vector(1, static_cast<std::byte*>(memory.get())), bytes, id, memory};
  }

  std::unique_ptr<transport> subgroup(std::span<const int>, std::uint64_t) override {
    return std::unique_ptr<transport>(new solo_transport(all_));
  }

 private:
  /// Shared by the world and its subgroups.
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t wakes = 0;  ///< calls of wake()
    std::optional<failure_record> abort_reason;
  };

  explicit solo_transport(std::shared_ptr<state> all) : all_(std::move(all)) {}

  std::shared_ptr<state> all_;
  std::uint64_t seen_ = 0;  ///< of `wakes`, by this group's last wait()
};

}  // namespace parx
