// Pipelined chains: broadcast and reduce of large vectors at the speed of one link.
//
// Ranks form a line that starts (broadcast) or ends (reduce) at the root. By the engine's prefix
// rule each rank forwards bytes as they arrive, so n bytes take about n beta + (P-2) alpha, without
// a chunk size to choose. A sum is grouped along the line: its bits differ from the tree's. An
// all_reduce sums up the line from rank 0, in serial order, and sends the sum back down: all ranks
// together send as many bytes as in a ring, in the fewest possible messages. A reduce_scatter does
// the same; on the way down each rank keeps its block and forwards those of lower ranks.
#pragma once

#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// The root's input is copied to every rank's output (`count` elements each).
[[nodiscard]] inline schedule chain_broadcast(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::chain};
  const int position = wrap(rank - root, world);
  const region output{place::output, 0, count};
  std::int32_t here = no_action;
  region source = output;
  if (position == 0) {
    source = {place::input, 0, count};
  } else {
    here = steps.receive(wrap(rank - 1, world), output);
  }
  if (position < world - 1) steps.send(wrap(rank + 1, world), source, here);
  if (position == 0) steps.copy(source, output);
  return steps;
}

/// All inputs are reduced into the root's output, starting at the far end of the line: for root 0
/// the result is x0 op (x1 op (x2 ...
[[nodiscard]] inline schedule chain_reduce(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::chain};
  const int position = wrap(rank - root, world);
  const region input{place::input, 0, count};
  const region sum{position == 0 ? place::output : place::scratch, 0, count};
  std::int32_t partial = no_action;
  region current = input;
  if (position < world - 1) {
    partial = steps.receive_reduce(wrap(rank + 1, world), input, sum, {.completes = position == 0});
    current = sum;
  }
  if (position != 0) {
    if (partial != no_action) steps.scratch_count = count;
    steps.send(wrap(rank - 1, world), current, partial);
  }
  return steps;
}

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule chain_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::chain};
  const region input{place::input, 0, count};
  const region output{place::output, 0, count};
  const bool last = rank == world - 1;
  std::int32_t here = no_action;
  if (rank > 0) {
    here =
        steps.receive_reduce(rank - 1, input, output, {.completes = last, .received_first = true});
  }
  if (!last) {
    here = steps.send(rank + 1, rank > 0 ? output : input, here);
    here = steps.receive(rank + 1, output, here);
  }
  if (rank > 0) steps.send(rank - 1, output, here);
  return steps;
}

/// Input holds all blocks; output holds block `rank`, reduced.
[[nodiscard]] inline schedule chain_reduce_scatter(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::chain};
  const region input{place::input, 0, blocks.total()};
  const region sum{place::scratch, 0, blocks.total()};
  const region own = blocks.alone(place::output, rank);
  const bool last = rank == blocks.parts() - 1;
  if (rank == 0) {
    steps.receive(1, own, steps.fence(steps.send(1, input)));
    return steps;
  }
  steps.scratch_count = sum.count;
  std::int32_t here =
      steps.receive_reduce(rank - 1, input, sum, {.completes = last, .received_first = true});
  if (!last) {
    // The partial sum is overwritten by the sums of all blocks up to this rank's.
    here = steps.fence(steps.send(rank + 1, sum, here));
    here = steps.receive(rank + 1, blocks.blocks(place::scratch, 0, rank + 1), here);
  }
  here = steps.fence(here);
  steps.send(rank - 1, blocks.blocks(place::scratch, 0, rank), here);
  steps.copy(blocks.block(place::scratch, rank), own, here);
  return steps;
}

}  // namespace parx::algorithms
