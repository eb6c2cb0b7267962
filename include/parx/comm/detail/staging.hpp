// staging: a group's own shared memory, through which staged algorithms pass their data.
//
// All ranks make it when the first call wants it. Issuing a call never waits for other ranks, so
// that is done as calls start: ahead of the first staged call goes one in which the ranks meet
// under its fingerprint, so that those who call different things find out. Rank 0 passes its memory
// on before it meets the others, and so they have it afterwards.
// Threads: turn() and issued() belong to whoever issues the group's calls, prepare() to its driver.
#pragma once

#include <memory>
#include <utility>

#include <parx/comm/detail/call.hpp>
#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/transport/transport.hpp>

namespace parx::detail {

class staging {
 public:
  /// The part that the next call begins with: equal on all ranks, as their calls are.
  [[nodiscard]] int turn() const noexcept { return turn_; }

  /// A staged call is about to be issued; returns what must be issued ahead of it, mostly nothing.
  [[nodiscard]] call* issued(const call& next, int slices, int rank, int world) {
    turn_ = (turn_ + slices) % schedules::staging_parts;
    if (meeting_ != nullptr || world == 1) return nullptr;
    meeting_ = std::make_unique<call>();
    meeting_->meets = true;
    meeting_->what = next.what;
    meeting_->site = next.site;
    meeting_->timeout = next.timeout;
    meeting_->header = next.header;
    meeting_->kept_steps.reset(
        new plan(make_plan(schedules::dissemination_barrier(rank, world))));
    meeting_->steps = meeting_->kept_steps.get();
    return meeting_.get();
  }

  /// As a call starts. Throws what transport::share does.
  void prepare(call& next, transport& network) {
    const bool staged = next.steps->steps.name == algorithm::staged && network.size() > 1;
    if (!next.meets && !staged) return;
    if (area_ == nullptr && (staged || network.rank() == 0)) {
      const auto limit = deadline::after(next.timeout);
      area_.reset(new shared_area(network.share(bytes, area_id, limit)));
    }
    if (staged) next.data.staging = {area_, 0};
  }

 private:
  /// The parts, and room for a signal of any element that fits into one.
  static constexpr std::size_t bytes = (schedules::staging_parts + 1) * default_staging;
  static constexpr std::uint64_t area_id = 0;  ///< shared_areas counts from one

  int turn_ = 0;
  std::unique_ptr<call> meeting_;
  std::shared_ptr<const shared_area> area_;
};

}  // namespace parx::detail
