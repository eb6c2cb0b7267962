// van de Geijn's broadcast (Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, 1994): the root
// scatters the vector by a binomial tree, then a ring gathers it on all ranks. Each link carries
// little more than the vector once, as in a chain, but all blocks are in flight at the same time.
//
// An inner rank of the tree keeps its subtree's blocks, and the ring skips blocks that the next
// rank has: every rank but the root receives every element exactly once, n (P-1) elements in all.
#pragma once

#include <algorithm>
#include <vector>

#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/tree.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// The root's input is copied to every rank's output (`count` elements each).
[[nodiscard]] inline schedule scatter_gather_broadcast(int rank, int world, std::size_t count,
                                                       int root) {
  schedule steps{.name = algorithm::scatter_gather};
  const partition blocks = partition::even(count, world);  // numbered from the root, as v is
  const int v = wrap(rank - root, world);
  const auto rank_of = [&](int u) { return wrap(u + root, world); };
  const auto last_of = [&](int u) { return std::min(u + detail::tree_edge(u, world), world); };
  const bool is_root = v == 0;
  const place held = is_root ? place::input : place::output;
  std::vector<std::int32_t> here(static_cast<std::size_t>(world), no_action);
  const auto arrived = [&](int u) -> std::int32_t& { return here[static_cast<std::size_t>(u)]; };

  const int parent = rank_of(v - detail::tree_edge(v, world));
  for (int u = last_of(v) - 1; u >= v; --u) {
    if (!is_root) arrived(u) = steps.receive(parent, blocks.block(place::output, u));
    if (u > v) {
      steps.send(rank_of(v + detail::tree_child(u - v)), blocks.block(held, u), arrived(u));
    }
  }

  // Block u is forwarded from each rank to the next, from u's own rank on; no rank sends to the
  // root.
  const auto has_from_tree = [&](int who, int u) {
    return who == 0 || (u >= who && u < last_of(who));
  };
  for (int step = 0; step < world; ++step) {
    const int u = wrap(v - step, world);
    if (!has_from_tree(v, u)) {
      arrived(u) = steps.receive(rank_of(v - 1), blocks.block(place::output, u));
    }
    if (v + 1 < world && !has_from_tree(v + 1, u)) {
      steps.send(rank_of(v + 1), blocks.block(held, u), arrived(u));
    }
  }
  if (is_root) steps.copy({place::input, 0, count}, {place::output, 0, count});
  return steps;
}

}  // namespace parx::algorithms
