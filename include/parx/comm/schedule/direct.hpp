// Direct algorithms: everybody talks to everybody at once, one latency, P-1 messages a rank.
//
// Best for few ranks and small chunks. Peers are visited starting behind the rank itself, so that not
// all of them send to rank 0 first.
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::schedules {

/// Input holds chunk `rank` of `count` elements; output receives all of them.
[[nodiscard]] inline schedule direct_all_gather(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::direct, .actions = {}, .scratch_count = 0};
  region own = chunk(place::input, count, world, rank);
  own.offset = 0;
  plan.add({action_kind::copy, -1, own, chunk(place::output, count, world, rank),
            {no_action, no_action}, false});
  for (int distance = 1; distance < world; ++distance) {
    plan.add({action_kind::send, wrap(rank + distance, world), own, {}, {no_action, no_action}, false});
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank - distance, world);
    plan.add({action_kind::receive, peer, {}, chunk(place::output, count, world, peer),
              {no_action, no_action}, false});
  }
  return plan;
}

/// Input holds `count` elements, cut into `world` chunks; output holds chunk `rank`. The sum is formed
/// in ring order (rank, rank-1, ...), but not with ring's grouping: bits may differ from ring's.
[[nodiscard]] inline schedule direct_reduce_scatter(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::direct, .actions = {}, .scratch_count = 0};
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank + distance, world);
    plan.add({action_kind::send, peer, chunk(place::input, count, world, peer), {},
              {no_action, no_action}, false});
  }
  region own = chunk(place::output, count, world, rank);
  own.offset = 0;
  std::int32_t partial = no_action;
  for (int distance = 1; distance < world; ++distance) {
    partial = plan.add({action_kind::receive_reduce, wrap(rank - distance, world),
                        partial == no_action ? chunk(place::input, count, world, rank) : own, own,
                        {partial, no_action}, distance == world - 1});
  }
  return plan;
}

}  // namespace parx::schedules
