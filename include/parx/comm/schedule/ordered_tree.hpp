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
  schedule plan{.name = algorithm::tree};
  const std::int32_t reduced =
      append(plan, tree_reduce(rank, world, count, 0), place::input, no_action);
  append(plan, tree_broadcast(rank, world, count, 0), place::output, reduced);
  return plan;
}

/// All contributions go to rank 0, and their sum to all ranks. Input and output hold `count`
/// elements; scratch holds the contributions of this rank's subtree.
[[nodiscard]] inline schedule ordered_tree_all_reduce(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::ordered_tree};
  const region input{place::input, 0, count};
  const region output{place::output, 0, count};
  const int edge = detail::tree_edge(rank, world);
  std::int32_t done = no_action;
  if (rank > 0) done = plan.send(rank - edge, input);
  for (int u = rank + 1; u < rank + edge && u < world; ++u) {
    const int child = rank + detail::tree_child(u - rank);
    if (rank == 0) {
      done = plan.receive_reduce(child, u == 1 ? input : output, output,
                                 {.after = {done, no_action}, .completes = u == world - 1});
      continue;
    }
    const region piece{place::scratch, plan.scratch_count, count};
    plan.scratch_count += count;
    done = plan.send(rank - edge, piece, plan.receive(child, piece));
  }
  if (rank > 0) done = plan.fence(done);
  append(plan, tree_broadcast(rank, world, count, 0), place::output, done);
  return plan;
}

/// Reduces to rank 0, which sends the result to the root. All inputs are reduced into the root's
/// output (`count` elements each).
[[nodiscard]] inline schedule ordered_tree_reduce(int rank, int world, std::size_t count,
                                                  int root) {
  schedule plan = tree_reduce(rank, world, count, 0);
  plan.name = algorithm::ordered_tree;
  if (root == 0) return plan;
  if (rank == root) plan.receive(0, {place::output, 0, count});
  if (rank != 0) return plan;
  const region sum{place::scratch, 0, count};
  plan.scratch_count = count;
  for (action& each : plan.actions) {
    if (each.from.where == place::output) each.from = sum;
    each.to = sum;
  }
  plan.send(root, sum, static_cast<std::int32_t>(plan.actions.size()) - 1);
  return plan;
}

}  // namespace parx::algorithms
