// Trees that keep rank order for any root, for operations that do not commute: a binomial tree over
// ranks 0, 1, 2, ... combines neighbours, the lower first. For serial order the contributions are
// sent up the tree uncombined, and rank 0 combines them one by one: for vectors so short that only
// latency counts.
#pragma once

#include <parx/comm/schedule/compose.hpp>
#include <parx/comm/schedule/tree.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Reduce to rank 0, then broadcast. Input and output hold `count` elements.
[[nodiscard]] inline schedule tree_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::tree};
  const std::int32_t reduced =
      append(steps, tree_reduce(rank, world, count, 0), place::input, no_action);
  append(steps, tree_broadcast(rank, world, count, 0), place::output, reduced);
  return steps;
}

/// All contributions go to rank 0, and their sum to all ranks. Input and output hold `count`
/// elements; scratch holds the contributions of this rank's subtree.
[[nodiscard]] inline schedule ordered_tree_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::ordered_tree};
  const region input{place::input, 0, count};
  const region output{place::output, 0, count};
  const int edge = detail::tree_edge(rank, world);
  std::int32_t done = no_action;
  if (rank > 0) done = steps.send(rank - edge, input);
  for (int u = rank + 1; u < rank + edge && u < world; ++u) {
    const int child = rank + detail::tree_child(u - rank);
    if (rank == 0) {
      done = steps.receive_reduce(child, u == 1 ? input : output, output,
                                  {.after = {done, no_action}, .completes = u == world - 1});
      continue;
    }
    const region piece{place::scratch, steps.scratch_count, count};
    steps.scratch_count += count;
    done = steps.send(rank - edge, piece, steps.receive(child, piece));
  }
  if (rank > 0) done = steps.fence(done);
  append(steps, tree_broadcast(rank, world, count, 0), place::output, done);
  return steps;
}

/// Reduces to rank 0, which sends the result to the root. All inputs are reduced into the root's
/// output (`count` elements each).
[[nodiscard]] inline schedule ordered_tree_reduce(int rank, int world, std::size_t count,
                                                  int root) {
  schedule steps = tree_reduce(rank, world, count, 0);
  steps.name = algorithm::ordered_tree;
  if (root == 0) return steps;
  if (rank == root) steps.receive(0, {place::output, 0, count});
  if (rank != 0) return steps;
  const region sum{place::scratch, 0, count};
  steps.scratch_count = count;
  for (action& each : steps.actions) {
    if (each.from.where == place::output) each.from = sum;
    each.to = sum;
  }
  steps.send(root, sum, static_cast<std::int32_t>(steps.actions.size()) - 1);
  return steps;
}

}  // namespace parx::algorithms
