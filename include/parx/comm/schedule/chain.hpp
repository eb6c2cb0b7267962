// Pipelined chains: broadcast and reduce of large vectors at the speed of one link.
//
// Ranks form a line starting (broadcast) or ending (reduce) at the root. The prefix rule of the
// engine makes each rank pass bytes on as they arrive, so n bytes take about n beta + (P-2) alpha
// with no chunk size to choose. A sum is grouped along the line: its bits are not the tree's.
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::schedules {

/// The root's input is copied to everybody's output (`count` elements each).
[[nodiscard]] inline schedule chain_broadcast(int rank, int world, std::size_t count, int root) {
  schedule plan{.name = algorithm::chain, .actions = {}, .scratch_count = 0};
  const int position = wrap(rank - root, world);
  const region output{place::output, 0, count};
  std::int32_t here = no_action;
  region source = output;
  if (position == 0) {
    source = {place::input, 0, count};
  } else {
    here = plan.add(
        {action_kind::receive, wrap(rank - 1, world), {}, output, {no_action, no_action}, false});
  }
  if (position < world - 1) {
    plan.add({action_kind::send, wrap(rank + 1, world), source, {}, {here, no_action}, false});
  }
  if (position == 0) {
    plan.add({action_kind::copy, -1, source, output, {no_action, no_action}, false});
  }
  return plan;
}

/// Everybody's input is reduced into the root's output, from the far end of the line: to root 0 it
/// is x0 op (x1 op (x2 ...
[[nodiscard]] inline schedule chain_reduce(int rank, int world, std::size_t count, int root) {
  schedule plan{.name = algorithm::chain, .actions = {}, .scratch_count = 0};
  const int position = wrap(rank - root, world);
  const region input{place::input, 0, count};
  const region sum{position == 0 ? place::output : place::scratch, 0, count};
  std::int32_t partial = no_action;
  region current = input;
  if (position < world - 1) {
    partial = plan.add({action_kind::receive_reduce, wrap(rank + 1, world), input, sum,
                        {no_action, no_action}, position == 0});
    current = sum;
  }
  if (position != 0) {
    if (partial != no_action) plan.scratch_count = count;
    plan.add({action_kind::send, wrap(rank - 1, world), current, {}, {partial, no_action}, false});
  }
  return plan;
}

}  // namespace parx::schedules
