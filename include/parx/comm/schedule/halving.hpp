// Recursive halving: in each step a rank exchanges half of its elements with a partner and keeps
// the sum of the other half, until one block is left. log2(P) steps, n (P-1)/P elements per rank.
//
// halving_all_reduce is Rabenseifner's (2004): halving over distances 1, 2, 4, ..., then an
// all-gather by doubling through the same partners in reverse: as few bytes as a ring, as few steps
// as a tree. Each sum combines neighbouring positions, the lower first, so rank order is kept, and
// the bits are those of doubling_all_reduce, on every rank.
// halving_reduce_scatter goes from distance P/2 down to 1, which leaves block r at rank r without a
// permutation. That needs an operation that commutes, and gives other bits.
#pragma once

#include <parx/comm/schedule/fold.hpp>
#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule halving_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::halving};
  const fold folded(world);
  const region input{place::input, 0, count};
  const region output{place::output, 0, count};
  if (folded.sits_out(rank)) {
    steps.send(rank + 1, input);
    steps.receive(rank + 1, output);
    return steps;
  }

  place current = place::input;
  std::int32_t partial = no_action;
  if (folded.is_proxy(rank)) {
    partial = steps.receive_reduce(rank - 1, input, output, {.received_first = true});
    current = place::output;
  }

  const partition chunks = partition::even(count, folded.power);
  const int position = folded.position(rank);
  int first = 0;
  int size = folded.power;  // this rank is responsible for chunks first to first + size - 1
  for (int bit = 1; bit < folded.power; bit *= 2) {
    const int partner = folded.rank_at(position ^ bit);
    size /= 2;
    const int keep = (position & bit) == 0 ? first : first + size;
    const int give = (position & bit) == 0 ? first + size : first;
    steps.send(partner, chunks.blocks(current, give, give + size), partial);
    partial = steps.receive_reduce(
        partner, chunks.blocks(current, keep, keep + size),
        chunks.blocks(place::output, keep, keep + size),
        {.after = {partial, no_action}, .completes = size == 1, .received_first = partner < rank});
    current = place::output;
    first = keep;
  }

  std::int32_t ready = partial;
  for (int bit = folded.power / 2; bit >= 1; bit /= 2) {
    const int partner = folded.rank_at(position ^ bit);
    const int theirs = (position & bit) == 0 ? first + size : first - size;
    steps.send(partner, chunks.blocks(place::output, first, first + size), ready);
    const std::int32_t received =
        steps.receive(partner, chunks.blocks(place::output, theirs, theirs + size));
    ready = steps.fence(ready, received);
    first = first < theirs ? first : theirs;
    size *= 2;
  }
  if (folded.is_proxy(rank)) steps.send(rank - 1, output, ready);
  return steps;
}

/// Input holds all blocks; output holds block `rank`, reduced.
[[nodiscard]] inline schedule halving_reduce_scatter(int rank, const partition& blocks) {
  schedule steps{.name = algorithm::halving};
  const int world = blocks.parts();
  const fold folded(world);
  const region all{place::input, 0, blocks.total()};
  const region own = blocks.alone(place::output, rank);
  if (folded.sits_out(rank)) {
    steps.send(rank + 1, all);
    steps.receive(rank + 1, own);
    return steps;
  }

  // Partial sums lie in scratch: all blocks for a proxy, else the half that is kept first.
  place current = place::input;
  std::size_t scratch_begin = 0;
  std::int32_t partial = no_action;
  if (folded.is_proxy(rank)) {
    steps.scratch_count = blocks.total();
    partial = steps.receive_reduce(rank - 1, all, {place::scratch, 0, blocks.total()},
                                   {.received_first = true});
    current = place::scratch;
  }
  const auto at = [&](place where, int first_rank, int last_rank) {
    region found = blocks.blocks(where, first_rank, last_rank);
    if (where == place::scratch) found.offset -= scratch_begin;
    return found;
  };

  const int position = folded.position(rank);
  int first = 0;
  for (int bit = folded.power / 2; bit > 1; bit /= 2) {
    const int partner = folded.rank_at(position ^ bit);
    const int keep = (position & bit) == 0 ? first : first + bit;
    const int give = (position & bit) == 0 ? first + bit : first;
    steps.send(partner, at(current, folded.first(give), folded.first(give + bit)), partial);
    const region kept = at(current, folded.first(keep), folded.first(keep + bit));
    if (steps.scratch_count == 0) {
      scratch_begin = kept.offset;
      steps.scratch_count = kept.count;
    }
    partial = steps.receive_reduce(
        partner, kept, at(place::scratch, folded.first(keep), folded.first(keep + bit)),
        {.after = {partial, no_action}, .received_first = partner < rank});
    current = place::scratch;
    first = keep;
  }

  // The last exchange is block by block: this rank's block goes to the output; a proxy forwards the
  // block of its partner that sits out.
  const int other = position ^ 1;
  const int partner = folded.rank_at(other);
  for (int r = folded.first(other); r < folded.first(other + 1); ++r) {
    steps.send(partner, at(current, r, r + 1), partial);
  }
  for (int r = folded.first(position); r < folded.first(position + 1); ++r) {
    const region from = at(current, r, r + 1);
    const std::int32_t reduced = steps.receive_reduce(
        partner, from, r == rank ? own : from,
        {.after = {partial, no_action}, .completes = true, .received_first = partner < rank});
    if (r != rank) steps.send(r, from, reduced);
  }
  return steps;
}

}  // namespace parx::algorithms
