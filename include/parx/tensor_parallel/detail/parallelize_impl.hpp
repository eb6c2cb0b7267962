// Definitions of parallelize.hpp.
#pragma once

#include <parx/tensor_parallel/parallelize.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE sharding parallelized::sharded_over(const process_group& world,
                                                const process_group& replicas) const {
  sharding how = spread_over(world, place_in(replicas));
  require(how.file.count % (place_in(axis_->group()).count * place_in(replicas).count) == 0,
          "sharded_over: {} ranks with {} parts and {} copies of each", world.size(), axis_->size(),
          replicas.size());
  return how;
}

PARX_INLINE sharding parallelized::sharded() const { return spread_over(axis_->group(), {}); }

PARX_INLINE sharding parallelized::spread_over(const process_group& world,
                                               shard_place replica) const {
  const shard_place all = place_within(place_in(axis_->group()), replica);
  const auto copies = [=, this](const std::string& name, const shard_spec&) {
    return is_cut(name) ? replica : all;
  };
  return {.file = place_in(world), .copies = copies, .others = place_in(world)};
}

}  // namespace parx
