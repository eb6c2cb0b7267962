// require_replica_order: whether a table can train virtual replicas (reduction/replica_tree.hpp).
// Its micro-batches are then the replicas of this rank, whose gradients are added up as they come.
#pragma once

#include <vector>

#include <parx/core/check.hpp>
#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error unless each stage makes the gradients of its parameters in the order of the
/// micro-batches, and its sums begin with the last of them.
inline void require_replica_order(const pipeline_table& table) {
  std::vector<int> last(static_cast<std::size_t>(table.stages), -1);
  for (const auto& actions : table.ranks) {
    for (const stage_action& a : actions) {
      require(a.kind != stage_work::reduce_gradients,
              "schedule {}: remove {}: with virtual replicas sums begin behind a stage's last "
              "backward",
              table.name, to_string(a));
      if (!makes_weight_gradient(a.kind)) continue;
      int& before = last[static_cast<std::size_t>(a.stage)];
      require(before < a.microbatch,
              "schedule {}: {} comes after micro-batch {}: gradients of virtual replicas are added "
              "up in their order",
              table.name, to_string(a), before);
      before = a.microbatch;
    }
  }
}

}  // namespace parx
