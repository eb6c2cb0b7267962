// compose: schedules made of other schedules.
#pragma once

#include <span>
#include <vector>

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Appends schedule `part`, which begins after action `start` and reads its input from `input`.
/// Part's rank i is members[i]; without members it is rank i. Returns an action that completes when
/// all of `part` has.
inline std::int32_t append(schedule& steps, const schedule& part, place input, std::int32_t start,
                           std::span<const int> members = {}) {
  const auto base = static_cast<std::int32_t>(steps.actions.size());
  const auto placed = [&](region at) {
    if (at.where == place::input) at.where = input;
    if (at.where == place::scratch) at.offset += steps.scratch_count;
    return at;
  };
  std::vector<int> waiters(part.actions.size(), 0);  // by action of the part
  for (const action& each : part.actions) {
    action step = each;
    step.from = placed(each.from);
    step.to = placed(each.to);
    if (each.peer >= 0 && !members.empty()) {
      step.peer = members[static_cast<std::size_t>(each.peer)];
    }
    bool waits = false;
    for (std::int32_t& dependency : step.after) {
      if (dependency == no_action) continue;
      ++waiters[static_cast<std::size_t>(dependency)];
      dependency += base;
      waits = true;
    }
    // An action that depends on another one of the part thereby depends on `start`.
    if (!waits) step.after[0] = start;
    steps.add(step);
  }
  steps.scratch_count += part.scratch_count;
  std::int32_t done = start;
  for (std::size_t i = 0; i < waiters.size(); ++i) {
    if (waiters[i] == 0) done = steps.fence(done, base + static_cast<std::int32_t>(i));
  }
  return done;
}

}  // namespace parx::algorithms
