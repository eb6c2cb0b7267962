// shard_groups: over which ranks an fsdp cuts the model, and which ranks have the same part.
//
// With hybrid sharding the model is cut over the ranks of each host (or of a mesh's axis), and rank
// i of one host has the same part as rank i of every other: values are then only gathered inside a
// host. Zhang et al.: MiCS (arXiv 2205.00119).
#pragma once

#include <cstddef>
#include <vector>

#include <parx/comm/process_group.hpp>

namespace parx::inline PARX_ABI {

/// The ranks over which a model is cut. By default all of the wrapper's group; with "host" those of
/// each host; with a group, such as mesh["dp_shard"], its ranks, a subset of the wrapper's.
class shard_scope {
 public:
  shard_scope() = default;
  shard_scope(const char* host);  // NOLINT(google-explicit-constructor)
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
  process_group shards;    ///< the ranks whose parts together are the whole model
  process_group replicas;  ///< the ranks that have the same part as this one
  std::vector<std::size_t> part_of;  ///< by rank of the wrapper's group: the number of its part
};

/// Collective over `group`. Throws usage_error unless all shard groups have the same size.
[[nodiscard]] shard_groups make_shard_groups(process_group& group, const shard_scope& scope,
                                             call_site site);

}  // namespace detail
}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/fsdp/detail/shard_groups_impl.hpp>
#endif
