// GPipe: all forwards, then all backwards. Simple, and keeps every micro-batch's activations.
//
// Each rank is idle (p-1) / (m+p-1) of the time and has m micro-batches in flight. Backwards run in
// the order of the forwards, so gradients are summed in the same order as in the other schedules.
// Huang et al.: GPipe (arXiv 1811.06965).
#pragma once

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::schedules {

[[nodiscard]] inline pipeline_table gpipe(const pipeline_shape& shape) {
  pipeline_table table = parx::detail::empty_table("gpipe", shape, 1);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = table.ranks[static_cast<std::size_t>(rank)];
    for (const stage_work kind : {stage_work::forward, stage_work::backward}) {
      for (int i = 0; i < shape.microbatches; ++i) actions.push_back({kind, rank, i});
    }
  }
  return table;
}

}  // namespace parx::schedules
