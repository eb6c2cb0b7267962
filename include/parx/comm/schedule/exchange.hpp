// all_to_all: every rank has a block for every other.
//
// Each block is sent directly to its rank. In step s a rank sends to the rank s ahead and receives
// from the one s behind (or, for a power of two, exchanges with rank xor s), so that no two ranks
// send to the same rank in one step. A step begins when the step `window` before it has ended. A
// window of one is the classic pairwise exchange; a larger window hides latency, but does not let
// all P - 1 streams enter one host at once.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/rooted_blocks.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

enum class pairing : std::uint8_t { shifted, mutual };

inline schedule exchange(algorithm name, int rank, const partition& outgoing,
                         const partition& incoming, int window, pairing pairs) {
  schedule steps{.name = name};
  const int world = outgoing.parts();
  const bool mutual = pairs == pairing::mutual;
  steps.copy(outgoing.block(place::input, rank), incoming.block(place::output, rank));
  std::vector<std::int32_t> ended{no_action};  // by step
  for (int step = 1; step < world; ++step) {
    const int to = mutual ? rank ^ step : wrap(rank + step, world);
    const int from = mutual ? rank ^ step : wrap(rank - step, world);
    const std::int32_t gate =
        step > window ? ended[static_cast<std::size_t>(step - window)] : no_action;
    const std::int32_t sent = steps.send(to, outgoing.block(place::input, to), gate);
    ended.push_back(steps.fence(sent, steps.receive(from, incoming.block(place::output, from))));
  }
  return steps;
}

}  // namespace detail

/// Input holds block r of `outgoing` for each rank r; output receives block r of `incoming` from
/// each, which is block `rank` of rank r's `outgoing`. Input and output do not overlap.
[[nodiscard]] inline schedule direct_all_to_all(int rank, const partition& outgoing,
                                                const partition& incoming,
                                                int window = default_window) {
  return detail::exchange(algorithm::direct, rank, outgoing, incoming, window,
                          detail::pairing::shifted);
}

/// As direct_all_to_all, one partner at a time.
[[nodiscard]] inline schedule pairwise_all_to_all(int rank, const partition& outgoing,
                                                  const partition& incoming) {
  const auto pairs = std::has_single_bit(static_cast<unsigned>(outgoing.parts()))
                         ? detail::pairing::mutual
                         : detail::pairing::shifted;
  return detail::exchange(algorithm::pairwise, rank, outgoing, incoming, 1, pairs);
}

}  // namespace parx::algorithms
