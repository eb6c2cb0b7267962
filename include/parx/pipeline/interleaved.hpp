// Interleaved 1F1B: v stages on each rank, so that the pipeline fills and drains in smaller steps.
//
// If p divides m, each rank is idle (p-1) / (v m + p-1) of the time, at the price of v times the
// messages. Rank r has up to (v-1) g + 2 (p-1-r) + 1 of its chunks in flight, with rounds of g
// micro-batches.
// Narayanan et al.: Efficient Large-Scale Language Model Training (arXiv 2104.04473).
#pragma once

#include <parx/pipeline/action.hpp>
#include <parx/pipeline/detail/rounds.hpp>

namespace parx::inline PARX_ABI::schedules {

[[nodiscard]] inline pipeline_table interleaved(const pipeline_shape& shape) {
  pipeline_table table = parx::detail::empty_table("interleaved", shape, shape.chunks);
  const parx::detail::chunk_rounds rounds(table.name, shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = table.ranks[static_cast<std::size_t>(rank)];
    const int warm_up = rounds.warm_up(rank, 2);
    for (int step = 0; step < warm_up; ++step) actions.push_back(rounds.forward(rank, step));
    for (int step = 0; step < rounds.total(); ++step) {
      if (warm_up + step < rounds.total()) actions.push_back(rounds.forward(rank, warm_up + step));
      actions.push_back(rounds.backward(stage_work::backward, rank, step));
    }
  }
  return table;
}

}  // namespace parx::schedules
