// shard_groups: among which ranks an fsdp cuts the model, and which ranks have equal parts.
//
// With hybrid sharding the ranks of each host (or of a mesh's axis) cut the model among themselves,
// and rank i of one has the part of rank i of every other: values then travel inside a host alone,
// and a host has as much of the model as it needs. Zhang et al.: MiCS (arXiv 2205.00119).
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// Among which ranks a model is cut: all of the wrapper's group; with "host" those of each host;
/// with a group, such as mesh["dp_shard"], its ranks, which are some of the wrapper's.
class shard_scope {
 public:
  shard_scope() = default;
  shard_scope(const char* host);
  /// Borrowed until the wrapper is made.
  shard_scope(process_group& ranks) : ranks_(&ranks) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_all() const noexcept { return !by_host_ && ranks_ == nullptr; }
  [[nodiscard]] process_group* ranks() const noexcept { return ranks_; }

 private:
  bool by_host_ = false;
  process_group* ranks_ = nullptr;
};

namespace detail {

struct shard_groups {
  process_group shards;    ///< these ranks' parts are one whole; values are gathered over it
  process_group replicas;  ///< these ranks have the same part
  std::vector<std::size_t> part_of;  ///< by rank of the wrapper's group: the number of its part
};

/// Collective over `group`. Throws usage_error where the ranks cannot be divided so that each has
/// one part of equally many.
[[nodiscard]] shard_groups make_shard_groups(process_group& group, const shard_scope& scope,
                                             call_site site);

}  // namespace detail
}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/shard_groups_impl.hpp>
#endif
