// barrier: the dissemination barrier, ceil(log2 P) rounds of signals (Hensgen, Finkel and Manber,
// 1988). In round k a rank signals the rank 2^k ahead and waits for the one 2^k behind.
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// Appends a barrier that begins once `after` is complete; returns the action that completes when
/// all ranks have arrived. A signal is one element of scratch: only the first message on a link has
/// a header.
inline std::int32_t append_barrier(schedule& steps, int rank, int world, std::int32_t after,
                                   std::size_t signal_at = 0) {
  const region signal{place::scratch, signal_at, 1};
  steps.scratch_count = signal_at + 1;
  std::int32_t arrived = after;
  for (int distance = 1; distance < world; distance *= 2) {
    steps.send(wrap(rank + distance, world), signal, arrived);
    // Completion is transitive: each round's send waits for the round before.
    arrived = steps.receive(wrap(rank - distance, world), signal, arrived);
  }
  return arrived;
}

/// The same for ranks that share memory.
inline std::int32_t append_host_barrier(schedule& steps, int rank, int world, std::int32_t after,
                                        std::size_t signal_at = 0) {
  if (world > most_in_host_barrier) return append_barrier(steps, rank, world, after, signal_at);
  return steps.add({.kind = action_kind::barrier, .after = {after, no_action}});
}

}  // namespace detail

[[nodiscard]] inline schedule dissemination_barrier(int rank, int world) {
  schedule steps{.name = algorithm::dissemination};
  detail::append_barrier(steps, rank, world, no_action);
  return steps;
}

}  // namespace parx::algorithms
