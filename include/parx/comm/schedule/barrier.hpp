// Dissemination barrier: ceil(log2 P) rounds of empty messages (Hensgen, Finkel and Manber, 1988).
//
// In round k a rank signals the rank 2^k ahead and waits for the one 2^k behind. The header is the
// whole message.
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::schedules {

[[nodiscard]] inline schedule dissemination_barrier(int rank, int world) {
  schedule plan{.name = algorithm::dissemination, .actions = {}, .scratch_count = 0};
  std::int32_t arrived = no_action;
  for (int distance = 1; distance < world; distance *= 2) {
    plan.add({action_kind::send, wrap(rank + distance, world), {}, {}, {arrived, no_action}, false});
    // The first round's arrival must also hold for every later one: completion is transitive because
    // each round's send waits for the round before.
    arrived = plan.add({action_kind::receive, wrap(rank - distance, world), {}, {},
                        {arrived, no_action}, false});
  }
  return plan;
}

}  // namespace parx::schedules
