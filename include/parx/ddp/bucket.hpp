// Buckets: which gradients are sent together, as a pure function.
//
// Gradients become final in about the reverse order of the forward pass, so buckets are filled from
// the last parameter backwards, one dtype each. The first bucket is small, so that communication
// starts early; the others are large, so that it is efficient. (Li et al., PyTorch Distributed,
// VLDB 2020.) When the last bucket is sent, no computation is left to hide it. A small model would
// have few buckets and hide little, so its buckets are limited to a sixteenth of its gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// A bucket is full when it has reached its limit, or a sixteenth of its group's gradients
/// (least_bucket_bytes if that is more).
struct bucket_limits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

/// Where a gradient lies in its bucket.
struct bucket_item {
  std::size_t parameter;  ///< index in registration order
  std::size_t offset;     ///< in bytes, from the start of the bucket's memory
};

/// A bucket: gradients of one type and group that are summed as one array.
struct bucket_plan {
  dtype type = dtype::float32;
  std::size_t group = 0;
  std::size_t bytes = 0;
  std::vector<bucket_item> items;
};

/// What assign_buckets() has to know of a parameter.
struct bucket_parameter {
  dtype type;
  std::size_t bytes;
  bool is_alone = false;       ///< has a bucket of its own
  std::size_t group = 0;       ///< the number of its reduction group
};

/// Gradients start at cache lines, so that kernels on them run at full speed.
inline constexpr std::size_t bucket_alignment = 64;

/// Smaller buckets are not worth an operation of their own.
inline constexpr std::size_t least_bucket_bytes = std::size_t{512} << 10;

/// Assigns `parameters` (in registration order) to buckets, which are in launch order. Every
/// parameter is in exactly one bucket.
[[nodiscard]] inline std::vector<bucket_plan> assign_buckets(
    const std::vector<bucket_parameter>& parameters, const bucket_limits& limits) {
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  struct group_state {
    std::size_t total = 0;                      // bytes of the parameters that share buckets
    std::size_t first = none;                   // its first bucket
    std::array<std::size_t, dtype_count> open;  // the unfinished bucket of each dtype
  };
  std::vector<group_state> groups;
  for (const bucket_parameter& each : parameters) {
    while (groups.size() <= each.group) groups.emplace_back().open.fill(none);
    groups[each.group].total += each.is_alone ? 0 : each.bytes;
  }
  std::vector<bucket_plan> buckets;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const bucket_parameter& next = parameters[i];
    group_state& group = groups[next.group];
    const std::size_t room =
        (next.bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
    std::size_t& current = group.open[static_cast<std::size_t>(next.type)];
    const std::size_t number = next.is_alone || current == none ? buckets.size() : current;
    if (number == buckets.size()) buckets.push_back({next.type, next.group, 0, {}});
    if (group.first == none) group.first = number;
    bucket_plan& bucket = buckets[number];
    bucket.items.push_back({i, bucket.bytes});
    bucket.bytes += room;
    if (next.is_alone) continue;
    const std::size_t limit = number == group.first ? limits.first_bytes : limits.bytes;
    const std::size_t sixteenth = std::max(least_bucket_bytes, group.total / 16);
    current = bucket.bytes >= std::min(limit, sixteenth) ? none : number;
  }
  return buckets;
}

}  // namespace parx
