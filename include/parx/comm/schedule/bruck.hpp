// Bruck's algorithms (Bruck, Ho, Kipnis, Upfal and Weathersby, 1997): log2(P) messages for any
// number of ranks.
//
// bruck_all_gather: at distance d = 1, 2, 4, ... a rank sends the d blocks it has. They arrive at
// their final places: a run that wraps around the end of the vector is sent as two messages, so
// nothing is rotated or copied, and the blocks may be uneven.
// bruck_all_to_all: a block for the rank i ahead is sent once for each set bit of i, up to log2(P)
// times: for tiny, even blocks only. The blocks of a step are packed into one message.
#pragma once

#include <algorithm>
#include <vector>

#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// Calls use(first, last) for the one or two runs of `count` blocks from `begin` on, mod `world`.
template <typename Use>
void for_each_run(int begin, int count, int world, Use use) {
  const int first = wrap(begin, world);
  const int before_end = std::min(count, world - first);
  use(first, first + before_end);
  if (before_end < count) use(0, count - before_end);
}

}  // namespace detail

/// Input holds block `rank`; output receives all of them.
[[nodiscard]] inline schedule bruck_all_gather(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::bruck};
  const int world = blocks.parts();
  std::int32_t ready =
      steps.copy(blocks.alone(place::input, rank), blocks.block(place::output, rank));
  for (int distance = 1; distance < world; distance *= 2) {
    const int count = std::min(distance, world - distance);
    const std::int32_t before = ready;
    detail::for_each_run(rank, count, world, [&](int first, int last) {
      steps.send(wrap(rank - distance, world), blocks.blocks(place::output, first, last), before);
    });
    detail::for_each_run(rank + distance, count, world, [&](int first, int last) {
      ready = steps.fence(ready, steps.receive(wrap(rank + distance, world),
                                               blocks.blocks(place::output, first, last)));
    });
  }
  return steps;
}

/// Input holds one block for each rank and output one from each, of `block` elements.
[[nodiscard]] inline schedule bruck_all_to_all(int rank, int world, std::size_t block) {
  schedule steps{.name = algorithm::bruck};
  const auto block_of = [&](place where, int index) {
    return region{where, static_cast<std::size_t>(index) * block, block};
  };
  steps.copy(block_of(place::input, rank), block_of(place::output, rank));
  // By i: where in scratch the block lies that goes i ranks ahead in total, once it has moved.
  std::vector<int> moved_to(static_cast<std::size_t>(world));
  int stored = 0;  // blocks in scratch

  std::int32_t ready = no_action;  // all that has arrived so far
  for (int bit = 1; bit < world; bit *= 2) {
    int moving = 0;
    for (int i = bit; i < world; ++i) moving += (i & bit) != 0 ? 1 : 0;
    region packed = block_of(place::scratch, stored);
    region arriving = block_of(place::scratch, stored + moving);
    packed.count = arriving.count = static_cast<std::size_t>(moving) * block;
    std::int32_t pack = no_action;
    for (int i = bit; i < world; ++i) {
      if ((i & bit) == 0) continue;
      int& place_of = moved_to[static_cast<std::size_t>(i)];
      const bool has_moved = (i & (bit - 1)) != 0;
      pack = steps.copy(has_moved ? block_of(place::scratch, place_of)
                                  : block_of(place::input, wrap(rank + i, world)),
                        block_of(place::scratch, stored), ready, pack);
      place_of = moving + stored++;
    }
    stored += moving;
    steps.send(wrap(rank + bit, world), packed, pack);
    const std::int32_t received = steps.receive(wrap(rank - bit, world), arriving);
    ready = steps.fence(received, ready);
  }
  steps.scratch_count = static_cast<std::size_t>(stored) * block;
  for (int i = 1; i < world; ++i) {
    steps.copy(block_of(place::scratch, moved_to[static_cast<std::size_t>(i)]),
               block_of(place::output, wrap(rank - i, world)), ready);
  }
  return steps;
}

}  // namespace parx::algorithms
