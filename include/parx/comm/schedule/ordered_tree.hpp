// Trees that keep the order of the ranks whatever the root, for operations that do not commute: a
// binomial tree over ranks 0, 1, 2, ... combines neighbours, the lower first.
#pragma once

#include <numeric>
#include <vector>

#include <parx/comm/schedule/compose.hpp>
#include <parx/comm/schedule/tree.hpp>

namespace parx::inline PARX_ABI::schedules {

/// Reduce to rank 0, then broadcast. Input and output hold `count` elements.
[[nodiscard]] inline schedule tree_all_reduce(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::tree, .actions = {}, .scratch_count = 0};
  std::vector<int> everybody(static_cast<std::size_t>(world));
  std::iota(everybody.begin(), everybody.end(), 0);
  const std::int32_t reduced =
      append(plan, tree_reduce(rank, world, count, 0), everybody, place::input, no_action);
  append(plan, tree_broadcast(rank, world, count, 0), everybody, place::output, reduced);
  return plan;
}

/// Reduce to rank 0, which hands the result to the root. Everybody's input is reduced into the
/// root's output (`count` elements each).
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

}  // namespace parx::schedules
