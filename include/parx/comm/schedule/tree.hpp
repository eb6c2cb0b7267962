// Binomial trees: broadcast and reduce in log2(P) steps, for small vectors.
//
// Ranks are numbered from the root: v = (rank - root) mod P. The parent of v is v without its
// lowest set bit; its children are v + 2^k for every 2^k below that bit. A sum combines
// neighbouring v, the lower first: from root 0 that is the order of the ranks, and in a power of
// two doubling_all_reduce's tree.
#pragma once

#include <bit>

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// v minus its parent: the lowest set bit of v. For the root a power of two >= world.
[[nodiscard]] constexpr int tree_edge(int v, int world) noexcept {
  int bit = 1;
  while (bit < world && (v & bit) == 0) bit *= 2;
  return bit;
}

/// The child of v whose subtree has v + distance, as its distance from v.
[[nodiscard]] constexpr int tree_child(int distance) noexcept {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(distance)));
}

}  // namespace detail

/// The root's input is copied to every rank's output (`count` elements each).
[[nodiscard]] inline schedule tree_broadcast(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::tree};
  const int v = wrap(rank - root, world);
  const int edge = detail::tree_edge(v, world);
  const region output{place::output, 0, count};
  std::int32_t here = no_action;
  region source = output;
  if (v == 0) {
    source = {place::input, 0, count};
  } else {
    here = steps.receive(wrap(v - edge + root, world), output);
  }
  // The farthest child first: it has the deepest subtree below it.
  for (int bit = edge / 2; bit >= 1; bit /= 2) {
    if (v + bit < world) steps.send(wrap(v + bit + root, world), source, here);
  }
  if (v == 0) steps.copy(source, output);
  return steps;
}

/// All inputs are reduced into the root's output. The other ranks need no output: their partial
/// sums are in scratch.
[[nodiscard]] inline schedule tree_reduce(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::tree};
  const int v = wrap(rank - root, world);
  const int edge = detail::tree_edge(v, world);
  const region sum{v == 0 ? place::output : place::scratch, 0, count};
  std::int32_t partial = no_action;
  region current{place::input, 0, count};
  for (int bit = 1; bit < edge && v + bit < world; bit *= 2) {
    const bool last = v == 0 && (2 * bit >= edge || v + 2 * bit >= world);
    partial = steps.receive_reduce(wrap(v + bit + root, world), current, sum,
                                   {.after = {partial, no_action}, .completes = last});
    current = sum;
  }
  if (v != 0) {
    if (partial != no_action) steps.scratch_count = count;
    steps.send(wrap(v - edge + root, world), current, partial);
  }
  return steps;
}

}  // namespace parx::algorithms
