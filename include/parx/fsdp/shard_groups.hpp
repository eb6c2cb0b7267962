// shard_groups: over which ranks an fsdp cuts the model, and which ranks have the same part.
//
// With hybrid sharding the model is cut over the ranks of each host (or of a mesh's axis), and rank
// i of one host has the same part as rank i of every other: values are then only gathered inside a
// host. Zhang et al.: MiCS (arXiv 2205.00119).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// The ranks over which a model is cut. By default all of the wrapper's group; with "host" those of
/// each host; with a group, such as mesh["dp_shard"], its ranks, a subset of the wrapper's.
class shard_scope {
 public:
  shard_scope() = default;
  shard_scope(const char* host) : by_host_(true) {
    require(std::string_view(host) == "host",
            "fsdp: .shard_within is \"host\" or a group, such as mesh[\"dp_shard\"], not \"{}\"",
            host);
  }  // NOLINT(google-explicit-constructor)
  /// Borrowed until the wrapper is made.
  shard_scope(process_group& ranks) : ranks_(&ranks) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_all() const noexcept { return !by_host_ && ranks_ == nullptr; }
  [[nodiscard]] process_group* ranks() const noexcept { return ranks_; }

 private:
  bool by_host_ = false;
  process_group* ranks_ = nullptr;
};

struct shard_groups {
  process_group shards;              ///< the ranks whose parts together are the whole model
  process_group replicas;            ///< the ranks that have the same part as this one
  std::vector<std::size_t> part_of;  ///< by rank of the wrapper's group: the number of its part
};

/// Collective over `group`. Throws usage_error unless all shard groups have the same size.
[[nodiscard]] inline shard_groups make_shard_groups(process_group& group, const shard_scope& scope,
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

}  // namespace parx
