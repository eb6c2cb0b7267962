// Staged algorithms: buffers that only their own rank sees, through memory that all of a host see.
//
// Every byte is copied in once and out once, and in between a rank reduces its part of all ranks'
// copies in one pass: with more ranks than cores it is the copies that take the time, and those of
// a ring are as many for every rank more. Slices go through one after another, in three parts of
// the staging memory in turn, with one meeting a slice:
//
//   copy in 0 | meet | combine 0, copy in 1 | meet | copy out 0, combine 1, copy in 2 | ...
//
// What is short, each rank reduces whole, all ranks' copies of it: copy in | meet | combine.
//
// A part is written again two meetings after others began to copy out of it: whoever is at the
// second of them has ended that. The next call takes the part that follows the last one's
// (comm/detail/host_memory.hpp), so this holds from call to call too. Sums are formed in rank
// order, as in shared buffers: their bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/comm/schedule/action.hpp>
#include <parx/comm/schedule/barrier.hpp>

namespace parx::schedules {

/// Parts of a rank's staging memory.
inline constexpr int staging_parts = 3;

/// Input and output hold `count` elements, cut into slices of `most` elements at most. Scratch is
/// this rank's staging memory: the parts, of `most` elements each, and one element more. `whole`:
/// each rank reduces all of it; needs count <= most.
[[nodiscard]] inline schedule staged_all_reduce(int rank, int world, std::size_t count,
                                                std::size_t most, bool whole) {
  schedule plan{.name = algorithm::staged, .actions = {}, .scratch_count = 0};
  plan.slices = count == 0 ? 1 : static_cast<int>((count - 1) / most + 1);
  plan.slice_count = most;
  const std::size_t signal = most * staging_parts;
  const auto slice_of = [&](int slice) { return chunk(place::input, count, plan.slices, slice); };
  // Rank r's share of a slice.
  const auto share = [&](int slice, int r) {
    region part = chunk(place::scratch, slice_of(slice).count, world, r);
    part.offset += static_cast<std::size_t>(slice % staging_parts) * most;
    return part;
  };
  const auto copy_in = [&](int slice, std::int32_t after) {
    const region from = slice_of(slice);
    return plan.copy(from, {place::scratch, share(slice, 0).offset, from.count}, after);
  };

  const std::int32_t first = copy_in(0, no_action);
  std::int32_t met = detail::append_meeting(plan, rank, world, first, signal);
  plan.scratch_count = signal + 1;
  if (whole) {
    plan.add({.kind = action_kind::combine, .from = {place::scratch, 0, count},
              .to = {place::output, 0, count}, .after = {met, no_action}, .completes = true});
    return plan;
  }
  for (int slice = 0; slice < plan.slices; ++slice) {
    const region own = share(slice, rank);
    std::int32_t done = plan.add({.kind = action_kind::combine, .from = own, .to = own,
                                  .after = {met, no_action}, .completes = true});
    if (slice + 1 < plan.slices) done = copy_in(slice + 1, done);
    met = detail::append_meeting(plan, rank, world, done, signal);
    for (int ahead = 0; ahead < world; ++ahead) {
      const int r = wrap(rank + ahead, world);
      const region from = share(slice, r);
      const std::size_t begin =
          slice_of(slice).offset + chunk_begin(slice_of(slice).count, world, r);
      met = plan.add({.kind = action_kind::fetch, .peer = r, .from = from,
                      .to = {place::output, begin, from.count}, .after = {met, no_action}});
    }
  }
  return plan;
}

}  // namespace parx::schedules
