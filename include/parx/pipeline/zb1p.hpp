// ZB1P: 1F1B with backward in two halves. The half that the previous stage waits for (I) runs
// first; the gradients of weights (W) fill otherwise idle time.
//
// If F, I and W take equally long, each rank is idle (p-1) / (3m+p-1) of the time. Rank r has
// min(p-r, m) micro-batches between F and I, and every rank up to p between F and W. With several
// chunks the order is the interleaved one with shorter warm-ups.
// Qi, Wan, Huang, Lin: Zero Bubble Pipeline Parallelism (arXiv 2401.10241).
#pragma once

#include <parx/pipeline/action.hpp>
#include <parx/pipeline/detail/rounds.hpp>

namespace parx::inline PARX_ABI::schedules {

[[nodiscard]] inline pipeline_table zb1p(const pipeline_shape& shape) {
  pipeline_table table = parx::detail::empty_table("zb1p", shape, shape.chunks);
  const parx::detail::chunk_rounds rounds(table.name, shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = table.ranks[static_cast<std::size_t>(rank)];
    const int warm_up = rounds.warm_up(rank, 1);
    int weights = 0;
    const auto next_weights = [&] {
      actions.push_back(rounds.backward(stage_work::backward_weights, rank, weights++));
    };
    for (int step = 0; step < warm_up; ++step) actions.push_back(rounds.forward(rank, step));
    for (int step = 0; step < rounds.total(); ++step) {
      if (warm_up + step < rounds.total()) actions.push_back(rounds.forward(rank, warm_up + step));
      actions.push_back(rounds.backward(stage_work::backward_inputs, rank, step));
      // Rank r keeps r of its W for the end, when the pipeline drains.
      if (step >= rank) next_weights();
    }
    while (weights < rounds.total()) next_weights();
  }
  return table;
}

}  // namespace parx::schedules
