// scattered_sum: a flat_sum by reduce_scatter, in the gradients' own type.
#pragma once

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/fsdp/flat_sum.hpp>

namespace parx::inline PARX_ABI::detail {

class scattered_sum final : public flat_sum {
 public:
  using flat_sum::flat_sum;

 private:
  void scatter() override {
    // The count was sent earlier on this group, so it has arrived when this sum starts to run.
    const bool divides = pass_.is_last && !pass_.adds && !how_.has_replicas();
    works_.push_back(async_reduce_scatter(
        how_.shards, buffer_view{memory_, flat_.whole(), flat_.type},
        pass_.adds ? own_block() : part(),
        {.divide_by = divides ? &header_.count() : nullptr, .order = how_.order}, site_));
  }
  void exchange() override {
    if (pass_.adds) take(static_cast<const std::byte*>(own_block().data));
    if (!pass_.is_last || !how_.has_replicas()) return;
    works_.push_back(async_all_reduce(
        how_.replicas, part(), {.divide_by = &header_.count(), .order = how_.order}, site_));
  }
  void complete() override {
    if (pass_.is_last && pass_.adds && !how_.has_replicas()) scale_part();
  }

  /// This rank's part of the gradients' memory.
  [[nodiscard]] buffer_view own_block() const noexcept {
    return {memory_ + how_.part * flat_.part_bytes(), flat_.part, flat_.type};
  }
};

}  // namespace parx::detail
