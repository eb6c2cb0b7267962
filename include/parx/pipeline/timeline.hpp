// measured_timeline: a step of a pipeline as it ran on all ranks, to be drawn beside simulate().
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/simulate.hpp>

namespace parx::inline PARX_ABI {

/// Collective. `here` are the actions of this rank in the last step, in seconds from its start.
[[nodiscard]] inline pipeline_timeline measured_timeline(const pipeline_table& table,
                                                         std::span<const action_span> here,
                                                         process_group& group, call_site site) {
  std::size_t most = 0;
  for (const auto& each : table.ranks) most = std::max(most, each.size());
  std::vector<double> mine(2 * most), all(mine.size() * table.ranks.size());
  double* next = mine.data();
  for (const action_span& each : here) {
    *next++ = each.begin;
    *next++ = each.end;
  }
  all_gather(group, mine, all, {}, site);
  pipeline_timeline found{.name = table.name + " as it ran", .stages = table.stages, .ranks = {}};
  for (std::size_t rank = 0; rank < table.ranks.size(); ++rank) {
    auto& spans = found.ranks.emplace_back();
    for (std::size_t i = 0; i < table.ranks[rank].size(); ++i) {
      const double* const at = all.data() + 2 * (rank * most + i);
      spans.push_back({table.ranks[rank][i], at[0], at[1]});
    }
  }
  return found;
}

}  // namespace parx
