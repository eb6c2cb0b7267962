// Prefix reductions in rank order: rank r gets x0 op x1 op ... op xr (scan) or op x(r-1) (exscan).
//
// doubling: at distance d = 1, 2, 4, ... a rank sends its partial result to the rank d ahead
//   (Hillis and Steele, 1986): log2(P) steps of the whole vector.
// chain: each rank combines its input with the previous rank's result and sends it on. It streams:
//   about n beta + (P-1) alpha.
// An exscan first sends each contribution to the next rank, and is then a scan of ranks 1 to P - 1;
// rank 0's output is unchanged. The two algorithms group differently, so their bits may differ. No
// action `completes`: results are inputs of the next ranks, so a scan has no average and no factor.
#pragma once

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::algorithms {

namespace detail {

/// The start of a scan: where this rank's value is, and the actions that bring it there.
struct scan_start {
  region value;
  std::int32_t here = no_action;   ///< completes when the value is there
  std::int32_t taken = no_action;  ///< sends the input; an in-place output may be written after it
  int first = 0;                   ///< the lowest rank that takes part
};

[[nodiscard]] inline scan_start shift_for_exscan(schedule& steps, int rank, int world,
                                                 std::size_t count) {
  scan_start start{.value = {place::scratch, 0, count}, .first = 1};
  if (rank < world - 1) start.taken = steps.send(rank + 1, {place::input, 0, count});
  if (rank > 0) {
    steps.scratch_count = count;
    start.here = steps.receive(rank - 1, start.value);
  }
  return start;
}

inline void doubling_scan_steps(schedule& steps, int rank, int world, const scan_start& start) {
  if (rank < start.first) return;
  const region output{place::output, 0, start.value.count};
  region current = start.value;
  std::int32_t partial = start.here;
  std::int32_t taken = start.taken;
  const int below = rank - start.first;  // participating ranks before this one
  for (int distance = 1; distance < world - start.first; distance *= 2) {
    // The value may be overwritten only once it has been sent.
    if (rank + distance < world) {
      const std::int32_t sent = steps.send(rank + distance, current, partial);
      if (current.where != place::scratch) taken = sent;
    }
    if (distance > below) continue;
    partial = steps.receive_reduce(rank - distance, current, output,
                                   {.after = {partial, taken}, .received_first = true});
    current = output;
  }
  if (below == 0) steps.copy(start.value, output, start.here, taken);
}

inline void chain_scan_steps(schedule& steps, int rank, int world, const scan_start& start) {
  if (rank < start.first) return;
  const region output{place::output, 0, start.value.count};
  const bool leads = rank == start.first;
  std::int32_t prefix = start.here;
  region current = start.value;
  if (leads) {
    steps.copy(start.value, output, start.here, start.taken);
  } else {
    prefix = steps.receive_reduce(rank - 1, start.value, output,
                                  {.after = {start.here, start.taken}, .received_first = true});
    current = output;
  }
  if (rank + 1 < world) steps.send(rank + 1, current, prefix);
}

}  // namespace detail

/// Input and output hold `count` elements.
[[nodiscard]] inline schedule doubling_scan(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::doubling};
  detail::doubling_scan_steps(steps, rank, world, {.value = {place::input, 0, count}});
  return steps;
}
[[nodiscard]] inline schedule chain_scan(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::chain};
  detail::chain_scan_steps(steps, rank, world, {.value = {place::input, 0, count}});
  return steps;
}

/// Input and output hold `count` elements; rank 0's output is not written.
[[nodiscard]] inline schedule doubling_exscan(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::doubling};
  detail::doubling_scan_steps(steps, rank, world,
                              detail::shift_for_exscan(steps, rank, world, count));
  return steps;
}
[[nodiscard]] inline schedule chain_exscan(int rank, int world, std::size_t count) {
  schedule steps{.name = algorithm::chain};
  detail::chain_scan_steps(steps, rank, world, detail::shift_for_exscan(steps, rank, world, count));
  return steps;
}

}  // namespace parx::algorithms
