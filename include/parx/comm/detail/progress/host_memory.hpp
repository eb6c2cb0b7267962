// host_memory: a group's own shared memory. In it its ranks meet (detail/board.hpp), and staged
// algorithms pass their data.
//
// All ranks make it when the first call wants it. Issuing a call never waits for other ranks, so
// that is done as calls start: ahead of the first such call goes one in which the ranks exchange
// signals under its fingerprint, so that those who call different things find out. Rank 0 passes
// its memory on before it signals, and so the others have it afterwards.
// Threads: ahead_of() belongs to whoever issues the group's calls, prepare() to its driver.
#pragma once

#include <memory>

#include <parx/comm/detail/progress/board.hpp>
#include <parx/comm/detail/progress/call.hpp>
#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/staged.hpp>
#include <parx/transport/transport.hpp>

namespace parx::inline PARX_ABI::detail {

class host_memory {
 public:
  /// What must be issued ahead of a call that will be issued next: mostly nothing (null).
  [[nodiscard]] call* ahead_of(const call& next, int rank, int world) {
    if (set_up_ != nullptr || world == 1 || !wants_memory(*next.steps)) return nullptr;
    set_up_ = std::make_unique<call>();
    set_up_->sets_up_memory = true;
    set_up_->what = next.what;
    set_up_->site = next.site;
    set_up_->timeout = next.timeout;
    set_up_->header = next.header;
    set_up_->kept_steps.reset(
        new execution_plan(make_plan(schedules::dissemination_barrier(rank, world))));
    set_up_->steps = set_up_->kept_steps.get();
    return set_up_.get();
  }

  /// As a call starts. Throws what transport::share does.
  void prepare(call& next, transport& network) {
    const bool wanted = network.size() > 1 && wants_memory(*next.steps);
    if (!next.sets_up_memory && !wanted) return;
    if (area_ == nullptr && (wanted || network.rank() == 0)) {
      const auto limit = deadline::after(next.timeout);
      area_.reset(new shared_area(network.share(bytes, area_id, limit)));
      board_.open(area_, network.rank());
    }
    const schedule& steps = next.steps->steps;
    if (wanted && steps.slices > 0) {
      next.data.staging = {area_, steps.slice_count, next_part_};
      next_part_ = (next_part_ + steps.slices) % schedules::staging_parts;
    }
  }

  [[nodiscard]] detail::board& board() noexcept { return board_; }

 private:
  /// The board, the parts, and room for a signal of any element that fits into one.
  static constexpr std::size_t bytes =
      board::bytes + (schedules::staging_parts + 1) * largest_slice;
  static constexpr std::uint64_t area_id = 0;  ///< shared_areas counts from one

  [[nodiscard]] static bool wants_memory(const execution_plan& steps) noexcept {
    return steps.meets || steps.steps.slices > 0;
  }

  int next_part_ = 0;  ///< that a staged call begins with: equal on all ranks
  std::unique_ptr<call> set_up_;
  std::shared_ptr<const shared_area> area_;
  detail::board board_;
};

}  // namespace parx::detail
