// Definitions of gradient_buckets.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/collectives/broadcast.hpp>
#include <parx/core/hash.hpp>
#include <parx/core/joined_text.hpp>
#include <parx/core/log.hpp>
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

PARX_INLINE gradient_buckets::~gradient_buckets() {
  // Sums in flight may still write to the buckets: wait before the parameters are unbound.
  hook_ = {};
  drop();
  for (const auto& bucket : buckets_) {
    for (const parameter_handle* const each : bucket->parameters) {
      each->detach_observer();
      each->unbind();
    }
  }
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

PARX_INLINE reduction_state gradient_buckets::state() const {
  std::vector<reduction_state::member> members;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    members.push_back({parameters_[i]->name(), bucket_of_[i]});
  }
  return {headers().who(), std::move(members), bucket_count()};
}

PARX_INLINE void gradient_buckets::broadcast_values() {
  for (std::size_t group = 0; group < groups().size(); ++group) {
    for (const auto& each : buckets_) {
      if (each->plan.group == group) broadcast_values(*each);
    }
  }
}

PARX_INLINE void gradient_buckets::broadcast_values(const gradient_bucket& bucket) {
  const auto for_each_value = [&](auto use) {
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      use(bucket.memory + bucket.plan.items[i].offset, *bucket.parameters[i]);
    }
  };
  for_each_value([](std::byte* place, const parameter_handle& from) {
    std::memcpy(place, from.value(), from.bytes());
  });
  broadcast(groups()[bucket.plan.group], bucket.view(), {.root = 0}, site_);
  for_each_value([](const std::byte* place, const parameter_handle& to) {
    std::memcpy(to.value(), place, to.bytes());
  });
  std::memset(bucket.memory, 0, bucket.plan.bytes);
}

PARX_INLINE void gradient_buckets::note_values() {
  values_hash_.reset();
  if (comparing_.is_next() && groups()[own].size() > 1 && !told_of_values_) {
    std::uint64_t hash = fnv1a({});
    for (const auto& each : parameters_) {
      const row_gradient_part* const rows = each->row_gradient();
      // A read of a table's value would apply the updates of rows that nobody has looked up since.
      const bool is_table = rows != nullptr && rows->expects_row_grad();
      if (each->count() == 0 || is_table || groups().number_of(*each) != own) continue;
      const std::size_t size = size_of(each->type());
      for (const std::size_t at : {std::size_t{0}, each->count() / 2, each->count() - 1}) {
        hash = fnv1a({static_cast<const char*>(each->value()) + at * size, size}, hash);
      }
    }
    hash ^= hash >> 32U;
    values_hash_ = static_cast<std::uint32_t>((hash ^ hash >> 16U) & 0xFFFFU);
  }
  headers().own().set_values_hash(values_hash_.value_or(0));
}

PARX_INLINE void gradient_buckets::compare_values() {
  process_group& ranks = groups()[own];
  if (!values_hash_ || headers().own().has_equal_values(ranks.size())) [[likely]]
    return;
  std::vector<std::uint32_t> all(static_cast<std::size_t>(ranks.size()));
  all_gather(ranks, std::span(&*values_hash_, 1), all, {}, site_);
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] != all[0]) others.push_back(rank);
  }
  told_of_values_ = true;
  if (ranks.rank() != 0) return;
  log(log_level::warn,
      "{}: the copies of the model differ: since step {} or before, values on rank {} of group "
      "\"{}\" are not those of rank 0. They stay equal where all ranks take the same steps: "
      "give every rank the same learning rate and the same options of the optimizer, and write "
      "values on all ranks or on none",
      headers().who(), comparing_.steps() - 1, joined_text(others), ranks.name());
}

PARX_INLINE void gradient_buckets::finish() {
  receive();
  compare_values();
  for (const auto& each : sums_) each->pass_on();
  for (int round = 0; round < rounds(); ++round) {
    for (const auto& each : sums_) each->proceed(round);
  }
  for (const auto& each : sums_) each->finish();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    // For a row-sparse gradient this also records that any row may be nonzero now.
    const bool by_rows = sums_[bucket_of_[i]]->is_by_rows();
    if (headers().users(i) > 0 && !by_rows) parameters_[i]->assume_grad();
  }
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
