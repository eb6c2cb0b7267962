// split: divides a group into smaller ones, as MPI_Comm_split.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>

namespace parx::inline PARX_ABI {

/// The color of a rank that joins none of the new groups; any negative color means the same.
inline constexpr int no_group = -1;

/// Collective over `group`. Ranks that pass the same `color` form a new group, ordered by `.key`,
/// then by old rank. Returns nullopt if `color` is negative. A new group opens no connection until
/// it is used.
[[nodiscard]] inline std::optional<process_group> split(process_group& group, int color,
                                                        split_options options = {},
                                                        call_site site = call_site::current()) {
  const std::array<std::int32_t, 2> mine{color, options.key};
  std::vector<std::int32_t> all(2 * static_cast<std::size_t>(group.size()));
  all_gather(group, mine, all, {}, site);
  if (color < 0) return std::nullopt;
  std::vector<int> members;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (all[2 * static_cast<std::size_t>(rank)] == color) members.push_back(rank);
  }
  const auto key_of = [&](int rank) { return all[2 * static_cast<std::size_t>(rank) + 1]; };
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return key_of(a) < key_of(b); });
  return group.subgroup(members, {.name = std::move(options.name)}, site);
}

}  // namespace parx
