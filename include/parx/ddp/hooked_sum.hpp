// hooked_sum: a bucket_sum that leaves it to a comm_hook what is sent.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include <parx/ddp/bucket_sum.hpp>
#include <parx/ddp/hook.hpp>

namespace parx::inline PARX_ABI::detail {

class hooked_sum final : public bucket_sum {
 public:
  /// The hook is borrowed.
  hooked_sum(comm_hook& hook, const gradient_bucket& bucket, process_group& group,
             step_headers& headers, reduction_order order, call_site site)
      : bucket_sum(bucket, group, headers, order, site), hook_(hook) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const parameter_handle& each = *bucket.parameters[i];
      tensors_.push_back({bucket.plan.items[i].offset / size_of(each.type()), each.rows(),
                          each.count() / each.rows()});
    }
  }

  void start() override {
    bucket_.clear_absent();
    hook_bucket hooked = view();
    hook_.start(hooked);
  }
  void proceed(int round) override {
    hook_bucket hooked = view();
    hooked.count = headers_.own().count();
    hook_.proceed(hooked, round);
  }
  /// As the hook sees the bucket before the samples of the step are known.
  [[nodiscard]] hook_bucket view() {
    // A power of two scales without rounding.
    const double count = headers_.recent_count();
    const double scale = count > 0 ? std::ldexp(1.0, -std::ilogb(count)) : 1;
    return {group_, site_, bucket_.number, bucket_.view(), tensors_, scale, 0, order_};
  }

 private:
  comm_hook& hook_;
  std::vector<hook_tensor> tensors_;
};

}  // namespace parx::detail
