// Definitions of shard_groups.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/core/check.hpp>
#include <parx/fsdp/shard_groups.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE shard_scope::shard_scope(const char* host) : by_host_(true) {
  require(std::string_view(host) == "host",
          "fsdp: .shard_within is \"host\" or a group, such as mesh[\"dp_shard\"], not \"{}\"",
          host);
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE shard_groups make_shard_groups(process_group& group, const shard_scope& scope,
                                           call_site site) {
  const auto world = static_cast<std::size_t>(group.size());
  std::vector<int> members;
  if (scope.ranks() != nullptr) {
    members.resize(static_cast<std::size_t>(scope.ranks()->size()));
    all_gather(*scope.ranks(), std::array<int, 1>{group.rank()}, members, {}, site);
  } else {
    const std::vector<int> hosts = scope.is_all() ? std::vector<int>(world, 0) : group.hosts();
    for (int rank = 0; rank < group.size(); ++rank) {
      const int own = hosts[static_cast<std::size_t>(group.rank())];
      if (hosts[static_cast<std::size_t>(rank)] == own) members.push_back(rank);
    }
  }
  const auto own = std::find(members.begin(), members.end(), group.rank()) - members.begin();
  const std::array<int, 3> mine{members.front(), static_cast<int>(own),
                                static_cast<int>(members.size())};
  std::vector<int> all(world * mine.size());
  all_gather(group, mine, all, {}, site);
  std::vector<int> replicas;
  std::vector<std::size_t> part_of;
  for (std::size_t rank = 0; rank < world; ++rank) {
    require(all[rank * 3 + 2] == mine[2],
            "fsdp at {}: .shard_within divides the ranks of group \"{}\" into {} and into {}; each "
            "part of the model must be on equally many",
            site, group.name(), mine[2], all[rank * 3 + 2]);
    part_of.push_back(static_cast<std::size_t>(all[rank * 3 + 1]));
    if (all[rank * 3 + 1] == mine[1]) replicas.push_back(static_cast<int>(rank));
  }
  return {group.subgroup(members, {.name = group.name() + "/shards"}, site),
          group.subgroup(replicas, {.name = group.name() + "/replicas"}, site), std::move(part_of)};
}

}  // namespace parx::detail
