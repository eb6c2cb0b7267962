// Looped BFS: GPipe with several stages a rank, in the order of the stages.
//
// Rank r has the stages r, r + p, r + 2p, ...; each computes all micro-batches before the next one
// starts, and backward runs in exactly the reverse order, as in PyTorch. So a sharded stage is
// gathered once for forward and once for backward.
// Lamy-Poirier: Breadth-First Pipeline Parallelism (arXiv 2211.05953).
#pragma once

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::schedules {

[[nodiscard]] inline pipeline_table looped_bfs(const pipeline_shape& shape) {
  pipeline_table table = parx::detail::empty_table("looped_bfs", shape, shape.chunks);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = table.ranks[static_cast<std::size_t>(rank)];
    for (int stage = rank; stage < table.stages; stage += shape.ranks) {
      for (int i = 0; i < shape.microbatches; ++i) {
        actions.push_back({stage_work::forward, stage, i});
      }
    }
    for (std::size_t forward = actions.size(); forward-- > 0;) {
      const stage_action of = actions[forward];
      actions.push_back({stage_work::backward, of.stage, of.microbatch});
    }
  }
  return table;
}

}  // namespace parx::schedules
