// whole_sum: a bucket_sum by all_reduce.
#pragma once

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/ddp/bucket_sum.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI::detail {

class whole_sum final : public bucket_sum {
 public:
  using bucket_sum::bucket_sum;

  void start() override {
    bucket_.clear_absent();
    // The step header's sum was issued first, so the count is complete when this sum runs. Over
    // another group it need not be: the count of samples is that of the ddp's own.
    sum_ = async_all_reduce(
        group_, bucket_.view(),
        {.divide_by = is_of_own_group() ? &headers_.own().count() : nullptr, .order = order_},
        site_);
  }
  void finish() override {
    sum_.wait();
    const buffer_view sum = bucket_.view();
    if (is_of_own_group()) return;
    scale_kernel(sum.type)(sum.data, sum.count, headers_.own().factor());
  }

 private:
  [[nodiscard]] bool is_of_own_group() const noexcept { return bucket_.plan.group == 0; }
};

}  // namespace parx::detail
