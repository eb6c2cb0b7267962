// Algorithms in shared buffers: ranks of one host read and write each other's memory in place.
//
// No data is sent. There are two barriers: after the first, when all ranks have entered, the
// buffers may be read; after the second, when all are done, they may be changed again. In between a
// rank reduces its own block over all ranks' buffers in one pass, or does its part of the copying.
// Sums are formed in rank order for every element: all ranks get the same bits, which may differ
// from those of ring or doubling.
#pragma once

#include <parx/comm/schedule/action.hpp>
#include <parx/comm/schedule/barrier.hpp>
#include <parx/comm/schedule/partition.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// The output is shared; `count` elements.
[[nodiscard]] inline schedule shared_all_reduce(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::shared};
  const std::int32_t written = steps.copy({place::input, 0, count}, {place::output, 0, count});
  const std::int32_t entered = detail::append_host_barrier(steps, rank, world, written);
  const region own = chunk(place::output, count, world, rank);
  const std::int32_t reduced = steps.add({.kind = action_kind::combine_for_all,
                                          .from = own,
                                          .to = own,
                                          .after = {entered, no_action},
                                          .completes = true});
  detail::append_host_barrier(steps, rank, world, reduced);
  return steps;
}

/// The input is shared; the output receives this rank's block.
[[nodiscard]] inline schedule shared_reduce_scatter(int rank, const partition& cut) {
  schedule steps{.name = algorithm::shared};
  const std::int32_t entered = detail::append_host_barrier(steps, rank, cut.parts(), no_action);
  const std::int32_t reduced = steps.add({.kind = action_kind::combine,
                                          .from = cut.block(place::input, rank),
                                          .to = cut.alone(place::output, rank),
                                          .after = {entered, no_action},
                                          .completes = true});
  detail::append_host_barrier(steps, rank, cut.parts(), reduced);
  return steps;
}

/// The output is shared; the input is this rank's block.
[[nodiscard]] inline schedule shared_all_gather(int rank, const partition& cut) {
  schedule steps{.name = algorithm::shared};
  const int world = cut.parts();
  const std::int32_t entered = detail::append_host_barrier(steps, rank, world, no_action);
  const std::int32_t written = steps.add({.kind = action_kind::spread,
                                          .from = cut.alone(place::input, rank),
                                          .to = cut.block(place::output, rank),
                                          .after = {entered, no_action}});
  detail::append_host_barrier(steps, rank, world, written);
  return steps;
}

/// The output is shared; `count` elements from the root. The root does its part of the copying: it
/// writes the last chunk into all other buffers while the other ranks read the rest from its own.
[[nodiscard]] inline schedule shared_broadcast(int rank, int world, std::size_t count, int root) {
  schedule steps{.name = algorithm::shared};
  const region written = chunk(place::output, count, world, world - 1);
  const region read{place::output, 0, written.offset};
  std::int32_t last = no_action;
  if (rank == root) last = steps.copy({place::input, 0, count}, {place::output, 0, count});
  last = detail::append_host_barrier(steps, rank, world, last);
  if (rank == root) {
    last = steps.add(
        {.kind = action_kind::spread, .from = written, .to = written, .after = {last, no_action}});
  } else {
    last = steps.add({.kind = action_kind::fetch,
                      .peer = root,
                      .from = read,
                      .to = read,
                      .after = {last, no_action}});
  }
  detail::append_host_barrier(steps, rank, world, last);
  return steps;
}

}  // namespace parx::algorithms
