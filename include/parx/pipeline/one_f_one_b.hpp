// 1F1B: from the first backward on, forwards and backwards alternate.
//
// As idle as GPipe, (p-1) / (m+p-1), but rank r has only min(p-r, m) micro-batches in flight.
// On slow links a rank waits for each hop twice a micro-batch: see eager_one_f_one_b.hpp.
// Narayanan et al.: PipeDream-Flush (arXiv 2006.09503).
#pragma once

#include <algorithm>

#include <parx/pipeline/action.hpp>

namespace parx::inline PARX_ABI::schedules {

namespace detail {

/// Rank r's warm-up has (p-1-r) * per_hop forwards, at most m.
[[nodiscard]] inline pipeline_table alternating(std::string_view name, const pipeline_shape& shape,
                                                int per_hop) {
  pipeline_table table = parx::detail::empty_table(name, shape, 1);
  const int count = shape.microbatches;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& actions = table.ranks[static_cast<std::size_t>(rank)];
    const int warm_up = std::min(count, (shape.ranks - 1 - rank) * per_hop);
    for (int i = 0; i < warm_up; ++i) actions.push_back({stage_work::forward, rank, i});
    for (int i = 0; i < count; ++i) {
      if (warm_up + i < count) actions.push_back({stage_work::forward, rank, warm_up + i});
      actions.push_back({stage_work::backward, rank, i});
    }
  }
  return table;
}

}  // namespace detail

[[nodiscard]] inline pipeline_table one_f_one_b(const pipeline_shape& shape) {
  return detail::alternating("1f1b", shape, 1);
}

}  // namespace parx::schedules
