// Direct algorithms: everybody talks to everybody at once, one latency, P-1 messages a rank.
//
// Best for few ranks and small chunks. Peers are visited starting behind the rank itself, so that
// not all of them send to rank 0 first. A sum is formed at one place, outwards from its rank's own
// contribution: first the lower ranks' one by one on its left, then the higher ranks' on its right,
// which keeps the order of the ranks. The grouping is not the ring's: bits may differ.
#pragma once

#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::schedules {

/// Input holds block `rank`; output receives all of them.
[[nodiscard]] inline schedule direct_all_gather(int rank, const partition& blocks) {
  schedule plan{.name = algorithm::direct, .actions = {}, .scratch_count = 0};
  const int world = blocks.parts();
  const region own = blocks.alone(place::input, rank);
  plan.copy(own, blocks.block(place::output, rank));
  for (int distance = 1; distance < world; ++distance) {
    plan.send(wrap(rank + distance, world), own);
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank - distance, world);
    plan.receive(peer, blocks.block(place::output, peer));
  }
  return plan;
}

namespace detail {

/// Appends the exchange after which `own` holds block `rank`, reduced. Returns its last action.
inline std::int32_t direct_reduce_phase(schedule& plan, int rank, const partition& blocks,
                                        region own) {
  const int world = blocks.parts();
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank + distance, world);
    plan.send(peer, blocks.block(place::input, peer));
  }
  std::int32_t partial = no_action;
  for (int step = 1; step < world; ++step) {
    const int peer = step <= rank ? rank - step : step;
    partial = plan.add({.kind = action_kind::receive_reduce,
                        .peer = peer,
                        .from = partial == no_action ? blocks.block(place::input, rank) : own,
                        .to = own,
                        .after = {partial, no_action},
                        .completes = step == world - 1,
                        .received_first = peer < rank});
  }
  return partial;
}

}  // namespace detail

/// Input holds all blocks; output holds block `rank`, reduced.
[[nodiscard]] inline schedule direct_reduce_scatter(int rank, const partition& blocks) {
  schedule plan{.name = algorithm::direct, .actions = {}, .scratch_count = 0};
  detail::direct_reduce_phase(plan, rank, blocks, blocks.alone(place::output, rank));
  return plan;
}

/// Input and output hold `count` elements. The bits are those of direct_reduce_scatter.
[[nodiscard]] inline schedule direct_all_reduce(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::direct, .actions = {}, .scratch_count = 0};
  const partition blocks = partition::even(count, world);
  const region own = blocks.block(place::output, rank);
  const std::int32_t reduced = detail::direct_reduce_phase(plan, rank, blocks, own);
  for (int distance = 1; distance < world; ++distance) {
    plan.send(wrap(rank + distance, world), own, reduced);
  }
  // In place, a block arrives only after its owner has received this rank's part of it.
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank - distance, world);
    plan.receive(peer, blocks.block(place::output, peer));
  }
  return plan;
}

}  // namespace parx::schedules
