// Ring algorithms: bandwidth-optimal, two links a rank.
//
// The vector is cut into `world` chunks. In the reduce-scatter phase chunk c starts at rank c+1 and
// collects one contribution a step until rank c holds its sum; in the all-gather phase the sums travel
// round once more. Each rank sends 2 n (P-1)/P elements for an all-reduce, half of that for either
// phase. Every sum is formed once, in ring order, at one place: all ranks get the same bits, and an
// all-reduce equals reduce-scatter + all-gather bit by bit. (Patarasuk and Yuan, 2009.)
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::schedules {

namespace detail {

/// Appends the reduce-scatter phase; returns the index of the action that completes chunk `rank`.
/// Partial sums of chunk c go to `partial(c)`; the finished chunk `rank` goes to `own`.
template <typename Partial>
std::int32_t ring_reduce_phase(schedule& plan, int rank, int world, std::size_t count, region own,
                               Partial partial) {
  const int next = wrap(rank + 1, world);
  const int previous = wrap(rank - 1, world);
  std::int32_t received = no_action;
  for (int step = 0; step < world - 1; ++step) {
    const int outgoing = wrap(rank - 1 - step, world);
    const int incoming = wrap(rank - 2 - step, world);
    const bool last = step == world - 2;
    const region source = step == 0 ? chunk(place::input, count, world, outgoing)
                                    : plan.actions[static_cast<std::size_t>(received)].to;
    plan.add({action_kind::send, next, source, {}, {received, no_action}, false});
    received = plan.add({action_kind::receive_reduce, previous,
                         chunk(place::input, count, world, incoming),
                         last ? own : partial(incoming, step), {no_action, no_action}, last});
  }
  return received;
}

/// Appends the all-gather phase: chunk `rank` is in `output` once action `ready` has moved it.
inline void ring_gather_phase(schedule& plan, int rank, int world, std::size_t count,
                              std::int32_t ready) {
  const int next = wrap(rank + 1, world);
  const int previous = wrap(rank - 1, world);
  for (int step = 0; step < world - 1; ++step) {
    const int outgoing = wrap(rank - step, world);
    const int incoming = wrap(rank - step - 1, world);
    plan.add({action_kind::send, next, chunk(place::output, count, world, outgoing), {},
              {ready, no_action}, false});
    ready = plan.add({action_kind::receive, previous, {},
                      chunk(place::output, count, world, incoming), {no_action, no_action}, false});
  }
}

}  // namespace detail

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule ring_all_reduce(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::ring, .actions = {}, .scratch_count = 0};
  const std::int32_t reduced = detail::ring_reduce_phase(
      plan, rank, world, count, chunk(place::output, count, world, rank),
      [&](int index, int) { return chunk(place::output, count, world, index); });
  detail::ring_gather_phase(plan, rank, world, count, reduced);
  return plan;
}

/// Input holds `count` elements, cut into `world` chunks; output holds chunk `rank`.
[[nodiscard]] inline schedule ring_reduce_scatter(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::ring, .actions = {}, .scratch_count = 0};
  // Two partial sums are alive at a time: the one being sent on and the one arriving.
  const std::size_t largest = chunk_begin(count, world, 1);
  plan.scratch_count = world > 2 ? 2 * largest : 0;
  region own = chunk(place::output, count, world, rank);
  own.offset = 0;
  detail::ring_reduce_phase(plan, rank, world, count, own, [&](int index, int step) {
    region partial = chunk(place::scratch, count, world, index);
    partial.offset = static_cast<std::size_t>(step % 2) * largest;
    return partial;
  });
  // A partial sum may be overwritten once it has been sent on, two steps later.
  for (std::size_t step = 2; step + 1 < static_cast<std::size_t>(world) - 1; ++step) {
    plan.actions[2 * step + 1].after[0] = static_cast<std::int32_t>(2 * (step - 1));
  }
  return plan;
}

/// Input holds chunk `rank` of `count` elements; output receives all of them.
[[nodiscard]] inline schedule ring_all_gather(int rank, int world, std::size_t count) {
  schedule plan{.name = algorithm::ring, .actions = {}, .scratch_count = 0};
  region own = chunk(place::input, count, world, rank);
  own.offset = 0;
  const std::int32_t copied = plan.add({action_kind::copy, -1, own,
                                        chunk(place::output, count, world, rank),
                                        {no_action, no_action}, false});
  detail::ring_gather_phase(plan, rank, world, count, copied);
  return plan;
}

}  // namespace parx::schedules
