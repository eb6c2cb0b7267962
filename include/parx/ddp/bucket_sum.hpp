// bucket_sum: the interface of what sums the gradients of one bucket over the ranks of its group,
// to their mean.
//
//   start() -> pass_on() -> proceed(), in each round -> finish()
//
//   whole_sum        an all_reduce
//   hooked_sum       what a comm_hook sends, in its rounds
//   table_sum        of an embedding the touched rows, where that is cheaper
//   replica_bucket   virtual replicas, along their tree, whole or by rows
//
// What begins after backward is called for all buckets in their order, first pass_on(), then each
// round: so the operations of a group come in one order on all its ranks.
// Threads: the one that runs backward.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include <parx/autograd/parameter_handle.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/comm/work.hpp>
#include <parx/core/source.hpp>
#include <parx/ddp/bucket.hpp>
#include <parx/reduction/step_header.hpp>

namespace parx::inline PARX_ABI::detail {

/// Gradients that are sent together, and the memory to which they are bound.
struct gradient_bucket {
  bucket_plan plan;
  std::size_t number = 0;  ///< in the order in which buckets are launched
  std::byte* memory = nullptr;
  std::vector<const parameter_handle*> parameters = {};  ///< by item

  [[nodiscard]] buffer_view view() const noexcept {
    return {memory, plan.bytes / size_of(plan.type), plan.type};
  }
  /// What this rank has no gradient of becomes zero: other ranks may have one.
  void clear_absent() const {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i]->has_grad()) continue;
      std::memset(memory + plan.items[i].offset, 0, parameters[i]->bytes());
    }
  }
};

class bucket_sum {
 public:
  /// All but `site` is borrowed.
  bucket_sum(const gradient_bucket& bucket, process_group& group, step_headers& headers,
             reduction_order order, call_site site) noexcept
      : bucket_(bucket), group_(group), headers_(headers), order_(order), site_(site) {}
  bucket_sum(const bucket_sum&) = delete;
  bucket_sum& operator=(const bucket_sum&) = delete;
  virtual ~bucket_sum() = default;

  /// Collective, asynchronous: the gradients are final, and the headers have been sent.
  virtual void start() = 0;
  /// Collective, after backward: the headers have arrived.
  virtual void pass_on() {}
  virtual void proceed(int /*round*/) {}
  /// Blocks until the gradients are the mean.
  virtual void finish() { sum_.wait(); }
  /// After finish(): whether the gradient knows which of its rows were written.
  [[nodiscard]] virtual bool is_by_rows() const noexcept { return false; }
  /// Gives the sum up: blocks until no operation uses the memory any more.
  virtual void drop() noexcept { sum_ = {}; }

 protected:
  /// Of the bucket of an embedding: whether any rank has a gradient.
  [[nodiscard]] bool is_used() const {
    return headers_.users(bucket_.plan.items.front().parameter) > 0;
  }

  const gradient_bucket& bucket_;
  process_group& group_;
  step_headers& headers_;
  const reduction_order order_;
  const call_site site_;
  work sum_;
};

}  // namespace parx::detail
