// Staged algorithms: buffers that only their own rank sees, through memory that all of a host see.
//
// A rank copies in what others reduce, and copies out what they have reduced; its own share of all
// ranks' copies it reduces in one pass, straight into its output. With more ranks than cores it is
// the copies that take the time, and those of a ring are as many for every rank more. Slices go
// through one after another, in three parts of the staging memory in turn, with one meeting a
// slice:
//
//   copy in 0 | meet | combine 0, copy in 1 | meet | copy out 0, combine 1, copy in 2 | ...
//
// What is short, each rank reduces whole, all ranks' copies of it: copy in | meet | combine.
//
// A part is written again two meetings after others began to copy out of it: whoever is at the
// second of them has ended that. The next call takes the part that follows the last one's
// (comm/detail/progress/host_memory.hpp), so this holds from call to call too. Sums are formed in
// rank order, as in shared buffers: their bits are the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/comm/schedule/action.hpp>
#include <parx/comm/schedule/barrier.hpp>

namespace parx::inline PARX_ABI::schedules {

/// Parts of a rank's staging memory.
inline constexpr int staging_parts = 3;

/// Input and output hold `count` elements, cut into slices of `most` elements at most. Scratch is
/// this rank's staging memory: the parts, of `most` elements each, and one element more. `whole`:
/// each rank reduces all of it; needs count <= most.
[[nodiscard]] inline schedule staged_all_reduce(int rank, int world, std::size_t count,
                                                std::size_t most, bool whole) {
  schedule plan{.name = algorithm::staged};
  plan.slices = count == 0 ? 1 : static_cast<int>((count - 1) / most + 1);
  plan.slice_count = most;
  const std::size_t signal = most * staging_parts;
  plan.scratch_count = signal + 1;
  const auto slice_at = [&](place where, int slice) {
    region all = chunk(where, count, plan.slices, slice);
    if (where == place::scratch) {
      all.offset = static_cast<std::size_t>(slice % staging_parts) * most;
    }
    return all;
  };
  // Rank r's share of a slice.
  const auto share = [&](place where, int slice, int r) {
    const region all = slice_at(where, slice);
    region part = chunk(where, all.count, world, r);
    part.offset += all.offset;
    return part;
  };
  // What comes before this rank's share, and what comes after it.
  const auto copy_in = [&](int slice, std::int32_t after) {
    const std::size_t size = slice_at(place::input, slice).count;
    const std::size_t begin = chunk_begin(size, world, rank);
    const std::size_t end = chunk_begin(size, world, rank + 1);
    const auto piece = [&](place where, std::size_t from, std::size_t to) {
      return region{where, slice_at(where, slice).offset + from, to - from};
    };
    after = plan.copy(piece(place::input, 0, begin), piece(place::scratch, 0, begin), after);
    return plan.copy(piece(place::input, end, size), piece(place::scratch, end, size), after);
  };

  if (whole) {
    const region copy = slice_at(place::scratch, 0);
    const std::int32_t met = detail::append_host_barrier(
        plan, rank, world, plan.copy(slice_at(place::input, 0), copy), signal);
    plan.add({.kind = action_kind::combine, .from = copy, .to = slice_at(place::output, 0),
              .after = {met, no_action}, .completes = true});
    return plan;
  }
  std::int32_t met = detail::append_host_barrier(plan, rank, world, copy_in(0, no_action), signal);
  for (int slice = 0; slice < plan.slices; ++slice) {
    std::int32_t done = plan.add(
        {.kind = action_kind::combine, .from = share(place::scratch, slice, rank),
         .to = share(place::output, slice, rank), .after = {met, no_action}, .completes = true,
         .own = share(place::input, slice, rank)});
    if (slice + 1 < plan.slices) done = copy_in(slice + 1, done);
    met = detail::append_host_barrier(plan, rank, world, done, signal);
    for (int ahead = 1; ahead < world; ++ahead) {
      const int r = wrap(rank + ahead, world);
      met = plan.add({.kind = action_kind::fetch, .peer = r,
                      .from = share(place::scratch, slice, r),
                      .to = share(place::output, slice, r), .after = {met, no_action}});
    }
  }
  return plan;
}

}  // namespace parx::schedules
