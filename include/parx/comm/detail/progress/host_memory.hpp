// host_memory: a group's own shared memory, for barriers (host_barrier.hpp) and for the data of
// staged algorithms.
//
// All ranks create it at the first call that needs it. Issuing a call never waits for other ranks,
// so the memory is made when that call starts to run. Before it the group issues a set-up call with
// the same fingerprint: a dissemination barrier over links, which detects ranks that are in
// different calls. Rank 0 shares its memory before it enters that barrier, so the other ranks can
// map it afterwards.
// Threads: ahead_of() belongs to the thread that issues the group's calls, prepare() to its driver.
#pragma once

#include <memory>

#include <parx/comm/detail/progress/host_barrier.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/transport/links.hpp>

namespace parx::inline PARX_ABI::detail {

class host_memory {
 public:
  /// The set-up call that must be issued before `next`; usually none (null).
  [[nodiscard]] call* ahead_of(const call& next, int rank, int world) {
    if (set_up_ != nullptr || world == 1 || !wants_memory(*next.plan)) return nullptr;
    set_up_ = std::make_unique<call>();
    set_up_->sets_up_memory = true;
    set_up_->what = next.what;
    set_up_->site = next.site;
    set_up_->timeout = next.timeout;
    set_up_->header = next.header;
    set_up_->kept_plan.reset(
        new execution_plan(make_plan(algorithms::dissemination_barrier(rank, world))));
    set_up_->plan = set_up_->kept_plan.get();
    return set_up_.get();
  }

  /// Called when a call starts to run. Throws what links::share does.
  void prepare(call& next, links& network) {
    const bool wanted = network.size() > 1 && wants_memory(*next.plan);
    if (!next.sets_up_memory && !wanted) return;
    if (area_ == nullptr && (wanted || network.rank() == 0)) {
      area_.reset(new shared_area(network.share(bytes, area_id, next.until())));
      barrier_.open(area_, network.rank());
    }
    const schedule& steps = next.plan->steps;
    if (wanted && steps.slices > 0) {
      next.data.staging = {area_.get(), steps.slice_count, next_part_};
      next_part_ = (next_part_ + steps.slices) % algorithms::staging_parts;
    }
  }

  [[nodiscard]] detail::host_barrier& barrier() noexcept { return barrier_; }

 private:
  /// The barrier's page, the parts, and room for a signal: one element, which fits into a part.
  static constexpr std::size_t bytes =
      host_barrier::bytes + (algorithms::staging_parts + 1) * largest_slice;
  static constexpr std::uint64_t area_id = 0;  ///< shared_areas counts from one

  [[nodiscard]] static bool wants_memory(const execution_plan& plan) noexcept {
    return plan.has_barrier || plan.steps.slices > 0;
  }

  int next_part_ = 0;  ///< the first part of the next staged call; equal on all ranks
  std::unique_ptr<call> set_up_;
  std::shared_ptr<const shared_area> area_;
  detail::host_barrier barrier_;
};

}  // namespace parx::detail
