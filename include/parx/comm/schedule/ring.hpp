// Ring algorithms: bandwidth-optimal, two links per rank.
//
// The vector is cut into `world` chunks. In the reduce-scatter phase chunk c starts at rank c+1 and
// collects one contribution a step until rank c holds its sum; in the all-gather phase the sums
// travel round once more. Each rank sends 2 n (P-1)/P elements for an all-reduce, half of that for
// either phase. Every sum is formed once, in ring order, at one place: all ranks get the same bits,
// and an all-reduce equals reduce-scatter + all-gather bit by bit. (Patarasuk and Yuan, 2009.)
#pragma once

#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// Appends the reduce-scatter phase; returns the index of the action that completes block `rank`.
/// Partial sums of block i go to `partial(i, step)`; the finished block `rank` goes to `own`.
template <typename Partial>
std::int32_t ring_reduce_phase(schedule& steps, int rank, const partition& blocks, region own,
                               Partial partial) {
  const int world = blocks.parts();
  const int next = wrap(rank + 1, world);
  const int previous = wrap(rank - 1, world);
  std::int32_t received = no_action;
  for (int step = 0; step < world - 1; ++step) {
    const int outgoing = wrap(rank - 1 - step, world);
    const int incoming = wrap(rank - 2 - step, world);
    const bool last = step == world - 2;
    const region source = step == 0 ? blocks.block(place::input, outgoing)
                                    : steps.actions[static_cast<std::size_t>(received)].to;
    steps.send(next, source, received);
    received = steps.receive_reduce(previous, blocks.block(place::input, incoming),
                                    last ? own : partial(incoming, step), {.completes = last});
  }
  return received;
}

/// Appends the all-gather phase: block `rank` is in `own` once action `ready` is complete.
inline void ring_gather_phase(schedule& steps, int rank, const partition& blocks, region own,
                              std::int32_t ready) {
  const int world = blocks.parts();
  const int next = wrap(rank + 1, world);
  const int previous = wrap(rank - 1, world);
  for (int step = 0; step < world - 1; ++step) {
    const int outgoing = wrap(rank - step, world);
    const int incoming = wrap(rank - step - 1, world);
    steps.send(next, step == 0 ? own : blocks.block(place::output, outgoing), ready);
    ready = steps.receive(previous, blocks.block(place::output, incoming));
  }
}

}  // namespace detail

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule ring_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::ring};
  steps.actions.reserve(4 * static_cast<std::size_t>(world - 1));
  const partition blocks = partition::even(count, world);
  const region own = blocks.block(place::output, rank);
  const std::int32_t reduced = detail::ring_reduce_phase(
      steps, rank, blocks, own, [&](int index, int) { return blocks.block(place::output, index); });
  detail::ring_gather_phase(steps, rank, blocks, own, reduced);
  return steps;
}

/// Input holds all blocks; output holds block `rank`, reduced.
[[nodiscard]] inline schedule ring_reduce_scatter(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::ring};
  const int world = blocks.parts();
  steps.actions.reserve(2 * static_cast<std::size_t>(world - 1));
  // Two partial sums are alive at a time: the one being sent on and the one arriving.
  const std::size_t largest = blocks.largest();
  steps.scratch_count = world > 2 ? 2 * largest : 0;
  detail::ring_reduce_phase(
      steps, rank, blocks, blocks.alone(place::output, rank), [&](int index, int step) {
        return region{place::scratch, static_cast<std::size_t>(step % 2) * largest,
                      blocks.count(index)};
      });
  // A partial sum may be overwritten once it has been sent on, two steps later. (By the prefix
  // rule, element by element if the two blocks have the same length.)
  for (std::size_t step = 2; step + 1 < static_cast<std::size_t>(world) - 1; ++step) {
    steps.actions[2 * step + 1].after[0] = static_cast<std::int32_t>(2 * (step - 1));
  }
  return steps;
}

/// Input holds block `rank`; output receives all of them.
[[nodiscard]] inline schedule ring_all_gather(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::ring};
  steps.actions.reserve(2 * static_cast<std::size_t>(blocks.parts()) - 1);
  const region own = blocks.alone(place::input, rank);
  steps.copy(own, blocks.block(place::output, rank));
  detail::ring_gather_phase(steps, rank, blocks, own, no_action);
  return steps;
}

}  // namespace parx::algorithms
