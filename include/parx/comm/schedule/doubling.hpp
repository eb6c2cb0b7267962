// Recursive doubling: log2(P) exchanges, the fewest possible.
//
// In step k a rank exchanges all it has with the rank whose position differs in bit k. For an
// all-reduce that is the whole vector each time; for an all-gather it doubles, so that no byte is
// sent twice (Thakur, Rabenseifner and Gropp, 2005). Sums combine neighbouring positions, the lower
// first: rank order is kept, and all ranks group the sum alike, as halving_all_reduce does.
#pragma once

#include <parx/comm/schedule/fold.hpp>
#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule doubling_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::doubling};
  const fold folded(world);
  const region input{place::input, 0, count};
  const region output{place::output, 0, count};
  if (folded.sits_out(rank)) {
    steps.send(rank + 1, input);
    steps.receive(rank + 1, output);
    return steps;
  }

  std::int32_t partial = no_action;  // the action that made the current partial sum
  region current = input;
  if (folded.is_proxy(rank)) {
    partial = steps.receive_reduce(rank - 1, input, output, {.received_first = true});
    current = output;
  }
  const int position = folded.position(rank);
  for (int bit = 1; bit < folded.power; bit *= 2) {
    const int partner = folded.rank_at(position ^ bit);
    const std::int32_t sent = steps.send(partner, current, partial);
    // The partial sum may be overwritten only once it has been sent.
    partial = steps.receive_reduce(partner, current, output,
                                   {.after = {sent, partial},
                                    .completes = 2 * bit == folded.power,
                                    .received_first = partner < rank});
    current = output;
  }
  if (folded.is_proxy(rank)) steps.send(rank - 1, output, partial);
  return steps;
}

/// Input holds block `rank`; output receives all of them. The world is a power of two.
[[nodiscard]] inline schedule doubling_all_gather(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::doubling};
  std::int32_t ready =
      steps.copy(blocks.alone(place::input, rank), blocks.block(place::output, rank));
  for (int bit = 1; bit < blocks.parts(); bit *= 2) {
    const int partner = rank ^ bit;
    const int mine = rank & ~(bit - 1);
    const int theirs = partner & ~(bit - 1);
    steps.send(partner, blocks.blocks(place::output, mine, mine + bit), ready);
    ready = steps.fence(ready,
                        steps.receive(partner, blocks.blocks(place::output, theirs, theirs + bit)));
  }
  return steps;
}

}  // namespace parx::algorithms
