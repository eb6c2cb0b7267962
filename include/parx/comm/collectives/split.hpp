// split: a group falls into smaller ones, as in MPI_Comm_split.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>

namespace parx {

/// Collective over `group`. Ranks that pass the same `color` form a new group, ordered by `key`, then by
/// old rank. The new groups open no connection until they are used.
[[nodiscard]] inline process_group split(process_group& group, int color, int key = 0,
                                         call_site site = call_site::current()) {
  const std::array<std::int32_t, 2> mine{color, key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(group.size()));
  all_gather(group, mine, all, {}, site);
  std::vector<int> members;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (all[2 * static_cast<std::size_t>(rank)] == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  return group.subgroup(members);
}

}  // namespace parx
