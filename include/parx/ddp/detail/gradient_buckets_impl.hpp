// Definitions of gradient_buckets.hpp: which bucket_sum each bucket gets.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <parx/ddp/bucket.hpp>
#include <parx/ddp/gathered_rows.hpp>
#include <parx/ddp/gradient_buckets.hpp>
#include <parx/ddp/hooked_sum.hpp>
#include <parx/ddp/replica_buckets.hpp>
#include <parx/ddp/shared_rows.hpp>
#include <parx/ddp/whole_sum.hpp>
#include <parx/reduction/rows/row_sparse.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::unique_ptr<gradient_buckets> gradient_buckets::make(
    const reduction_groups& groups, handles parameters, const bucket_limits& limits,
    comm_hook hook, reduction_order order, int replicas, call_site site) {
  std::unique_ptr<gradient_buckets> made;
  if (replicas > 0) {
    made.reset(new replica_buckets(groups, std::move(parameters), order, replicas, site));
  } else {
    made.reset(new gradient_buckets(groups, std::move(parameters), std::move(hook), order, site));
  }
  made->lay_out(limits);
  return made;
}

PARX_INLINE bool gradient_buckets::is_table(const parameter_handle& parameter) const {
  return groups().number_of(parameter) == own && is_exchanged_by_rows(parameter);
}

PARX_INLINE void gradient_buckets::lay_out(const bucket_limits& limits) {
  std::vector<bucket_parameter> sizes;
  for (const auto& each : parameters_) {
    sizes.push_back({each->type(), each->bytes(), is_table(*each), groups().number_of(*each)});
  }
  std::vector<bucket_plan> plans = assign_buckets(sizes, limits);
  const auto room_of = [&](const bucket_plan& bucket) {
    const parameter_handle& first = *parameters_[bucket.items.front().parameter];
    return bucket.bytes + (is_table(first) ? shared_rows::mark_bytes(first) : 0);
  };
  std::vector<std::size_t> bytes(groups().size());
  for (const bucket_plan& each : plans) bytes[each.group] += room_of(each);
  std::vector<std::byte*> begin;
  for (std::size_t group = 0; group < bytes.size(); ++group) {
    memory_.emplace_back(groups()[group], bytes[group], site_);
    begin.push_back(memory_.back().data());
  }
  for (bucket_plan& each : plans) {
    std::byte*& next = begin[each.group];
    auto& made = *buckets_.emplace_back(new gradient_bucket{each, buckets_.size(), next});
    next += room_of(each);
    for (const bucket_item& item : each.items) {
      made.parameters.push_back(parameters_[item.parameter].get());
      made.parameters.back()->bind_grad(made.memory + item.offset);
      bucket_of_[item.parameter] = made.number;
    }
    sums_.push_back(sum_of(made, is_table(*made.parameters.front())));
  }
}

PARX_INLINE std::unique_ptr<bucket_sum> gradient_buckets::sum_of(const gradient_bucket& bucket,
                                                                 bool is_table) {
  process_group& group = groups()[bucket.plan.group];
  std::unique_ptr<bucket_sum> whole;
  if (hook_ && bucket.plan.group == own) {
    hooked_.push_back(new hooked_sum(hook_, bucket, group, headers(), order_, site_));
    whole.reset(hooked_.back());
  } else {
    whole.reset(new whole_sum(bucket, group, headers(), order_, site_));
  }
  if (!is_table) return whole;
  if (const shared_buffer<std::byte>* const shared = memory_[own].shared()) {
    const auto offset = static_cast<std::size_t>(bucket.memory - shared->data());
    return std::make_unique<shared_rows>(*shared, offset, std::move(whole), bucket, group,
                                         headers(), order_, site_);
  }
  return std::make_unique<gathered_rows>(std::move(whole), bucket, group, headers(), order_, site_);
}

PARX_INLINE std::vector<hook_memory> gradient_buckets::hook_state() {
  if (!hook_) return {};
  std::vector<hook_bucket> buckets;
  for (hooked_sum* const each : hooked_) buckets.push_back(each->view());
  std::vector<hook_memory> all = hook_.memory(buckets);
  // The next step's scale is computed from it.
  double& samples = headers().own().count();
  all.push_back({"samples_of_last_step", {&samples, 1, dtype::float64}, hook_memory_kind::equal});
  return all;
}

}  // namespace parx::detail
