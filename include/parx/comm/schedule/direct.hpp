// Direct algorithms: every rank sends to every other at once: one latency, P-1 messages per rank.
//
// Best for few ranks and small chunks. Each rank starts with the rank after itself, so that not all
// send to rank 0 first. A sum is formed on one rank, in rank order. Contributions that arrive early
// wait in their link's staging buffer (256 KiB at most), then at their sender; the sum of the lower
// ranks needs one block of scratch.
#pragma once

#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// Appends the sends of `own`, which is this rank's block once action `ready` is complete, to all
/// other ranks, and the receipt of theirs.
inline void direct_gather_phase(schedule& steps, int rank, const partition& blocks, region own,
                                std::int32_t ready) {
  const int world = blocks.parts();
  for (int distance = 1; distance < world; ++distance) {
    steps.send(wrap(rank + distance, world), own, ready);
  }
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank - distance, world);
    steps.receive(peer, blocks.block(place::output, peer));
  }
}

/// Appends the reduction of `mine` and the data that all other ranks send; `sum` may be the same
/// region as `mine`. Returns its last action.
inline std::int32_t fold_serially(schedule& steps, int rank, int world, region mine, region sum) {
  std::int32_t partial = no_action;
  region current = mine;
  if (rank > 1) {
    // The sum of the lower ranks. It must not overwrite `mine`, which comes after it.
    current = {place::scratch, steps.scratch_count, mine.count};
    steps.scratch_count += mine.count;
    partial = steps.receive(0, current);
  }
  const int last = rank == world - 1 ? world - 2 : world - 1;
  for (int peer = rank > 1 ? 1 : 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const region to = peer + 1 < rank ? current : sum;
    partial = steps.receive_reduce(peer, current, to,
                                   {.after = {partial, no_action},
                                    .completes = peer == last,
                                    .received_first = rank == 1 && peer == 0,
                                    .own = rank > 1 && peer + 1 == rank ? mine : region{}});
    current = to;
  }
  return partial;
}

/// Appends the exchange after which `own` holds block `rank`, reduced. Returns its last action.
inline std::int32_t direct_reduce_phase(schedule& steps, int rank, const partition& blocks,
                                        region own) {
  const int world = blocks.parts();
  for (int distance = 1; distance < world; ++distance) {
    const int peer = wrap(rank + distance, world);
    steps.send(peer, blocks.block(place::input, peer));
  }
  return fold_serially(steps, rank, world, blocks.block(place::input, rank), own);
}

}  // namespace detail

/// Input holds block `rank`; output receives all of them.
[[nodiscard]] inline schedule direct_all_gather(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::direct};
  const region own = blocks.alone(place::input, rank);
  steps.copy(own, blocks.block(place::output, rank));
  detail::direct_gather_phase(steps, rank, blocks, own, no_action);
  return steps;
}

/// Input holds all blocks; output holds block `rank`, reduced.
[[nodiscard]] inline schedule direct_reduce_scatter(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::direct};
  detail::direct_reduce_phase(steps, rank, blocks, blocks.alone(place::output, rank));
  return steps;
}

/// Input and output hold `count` elements. The bits are those of direct_reduce_scatter.
[[nodiscard]] inline schedule direct_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::direct};
  const partition blocks = partition::even(count, world);
  const region own = blocks.block(place::output, rank);
  const std::int32_t reduced = detail::direct_reduce_phase(steps, rank, blocks, own);
  // In place, a block arrives only after its owner has received this rank's part of it.
  detail::direct_gather_phase(steps, rank, blocks, own, reduced);
  return steps;
}

/// All inputs are reduced into the root's output (`count` elements each).
[[nodiscard]] inline schedule direct_reduce(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::direct};
  const region input{place::input, 0, count};
  if (rank == root) detail::fold_serially(steps, rank, world, input, {place::output, 0, count});
  else steps.send(root, input);
  return steps;
}

}  // namespace parx::algorithms
