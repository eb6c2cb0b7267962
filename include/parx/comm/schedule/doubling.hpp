// Recursive doubling: the latency-optimal all-reduce, log2(P) exchanges of the whole vector.
//
// In step k a rank exchanges its partial sum with the rank whose number differs in bit k. When the
// world is no power of two, the first 2 (P - 2^k) ranks pair up first: the even one hands its vector to
// the odd one and gets the result at the end. a op b and b op a have the same bits for every
// reduction here, so all ranks end with the same bits.
#pragma once

#include <bit>

#include <parx/comm/schedule/action.hpp>

namespace parx::schedules {

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule doubling_all_reduce(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::doubling, .actions = {}, .scratch_count = 0};
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(world)));
  const int extra = world - power;  // pairs that fold
  const region whole_input{place::input, 0, count};
  const region whole_output{place::output, 0, count};
  const bool folded = rank < 2 * extra;

  if (folded && rank % 2 == 0) {
    plan.add({action_kind::send, rank + 1, whole_input, {}, {no_action, no_action}, false});
    plan.add({action_kind::receive, rank + 1, {}, whole_output, {no_action, no_action}, false});
    return plan;
  }

  std::int32_t partial = no_action;  // the action that made the current partial sum
  region current = whole_input;
  if (folded) {
    partial = plan.add({action_kind::receive_reduce, rank - 1, whole_input, whole_output,
                        {no_action, no_action}, false});
    current = whole_output;
  }
  const int position = folded ? rank / 2 : rank - extra;
  for (int bit = 1; bit < power; bit *= 2) {
    const int partner_position = position ^ bit;
    const int partner =
        partner_position < extra ? 2 * partner_position + 1 : partner_position + extra;
    const std::int32_t sent =
        plan.add({action_kind::send, partner, current, {}, {partial, no_action}, false});
    // The partial sum may be overwritten only where it has been sent.
    partial = plan.add({action_kind::receive_reduce, partner, current, whole_output,
                        {sent, partial}, 2 * bit == power});
    current = whole_output;
  }
  if (folded) {
    plan.add({action_kind::send, rank - 1, whole_output, {}, {partial, no_action}, false});
  }
  return plan;
}

}  // namespace parx::schedules
