// narrow_sum: a flat_sum of 32-bit floats that are sent as bfloat16. The sum over the shards is
// formed in float, in rank order; see wire_types::reduce.
#pragma once

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/comm/collectives/all_to_all.hpp>
#include <parx/fsdp/flat_sum.hpp>

namespace parx::inline PARX_ABI::detail {

class narrow_sum final : public flat_sum {
 public:
  using flat_sum::flat_sum;

 private:
  void scatter() override {
    narrow(memory_, memory_, flat_.whole());
    const buffer_view sent{memory_, flat_.whole(), dtype::bfloat16};
    const buffer_view received{arrived(), flat_.whole(), dtype::bfloat16};
    works_.push_back(async_all_to_all(how_.shards, sent, received, {}, site_));
  }
  void exchange() override {
    add_up_narrow(arrived(), flat_.ranks, memory_, flat_.part);
    take(memory_);
    if (!pass_.is_last || !how_.has_replicas()) return;
    narrow(part_, memory_, flat_.part);
    const buffer_view sum{memory_, flat_.part, dtype::bfloat16};
    works_.push_back(async_all_reduce(how_.replicas, sum, {.order = how_.order}, site_));
  }
  void complete() override {
    if (!pass_.is_last) return;
    if (how_.has_replicas()) widen(memory_, part_, flat_.part);
    scale_part();
  }

  /// The second half of the memory, for what the other ranks send.
  [[nodiscard]] std::byte* arrived() const noexcept { return memory_ + flat_.whole_bytes() / 2; }
};

}  // namespace parx::detail
