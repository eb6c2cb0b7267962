// execution_plan: a schedule sorted for the engine, by the links it uses.
//
// It is made once for a call's shape and kept (call_cache::find), so that a training loop's
// collectives build and allocate nothing after the first iteration.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <parx/comm/schedule/action.hpp>
#include <parx/core/find.hpp>

namespace parx::inline PARX_ABI {

/// The traffic of one link: indices into schedule::actions, in wire order.
struct lane_plan {
  int peer = -1;
  std::vector<std::int32_t> sends{};
  std::vector<std::int32_t> receives{};
  std::size_t largest_reduction = 0;  ///< elements of the largest receive_reduce
};

struct execution_plan {
  schedule steps;
  std::vector<lane_plan> lanes{};
  std::vector<std::int32_t> local{};  ///< indices of actions that need no link
  bool has_barrier = false;                 ///< whether one of them is a meeting of all ranks
  std::vector<bool> awaited{};        ///< by action: whether another action depends on it
};

[[nodiscard]] inline execution_plan make_plan(schedule steps) {
  execution_plan result{.steps = std::move(steps)};
  result.awaited.resize(result.steps.actions.size());
  const auto lane_of = [&](int peer) -> lane_plan& {
    const auto found = find_by(result.lanes, &lane_plan::peer, peer);
    if (found != result.lanes.end()) return *found;
    return result.lanes.emplace_back(lane_plan{.peer = peer});
  };
  for (std::size_t i = 0; i < result.steps.actions.size(); ++i) {
    const action& step = result.steps.actions[i];
    const auto index = static_cast<std::int32_t>(i);
    for (const std::int32_t before : step.after) {
      if (before != no_action) result.awaited[static_cast<std::size_t>(before)] = true;
    }
    switch (step.kind) {
      case action_kind::send: lane_of(step.peer).sends.push_back(index); break;
      case action_kind::receive_reduce: {
        lane_plan& lane = lane_of(step.peer);
        lane.largest_reduction = std::max(lane.largest_reduction, step.count());
        lane.receives.push_back(index);
        break;
      }
      case action_kind::receive: lane_of(step.peer).receives.push_back(index); break;
      default:
        result.local.push_back(index);
        result.has_barrier |= step.kind == action_kind::barrier;
    }
  }
  return result;
}

}  // namespace parx
