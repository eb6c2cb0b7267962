// Staged algorithms: private buffers, copied through shared memory of the host's ranks.
//
// A rank copies in the chunks that other ranks reduce, reduces its own chunk of all ranks' copies
// in one pass straight into its output, and copies out the chunks that others have reduced. With
// more ranks than cores the copies take the time, and in a ring every further rank adds as many
// again. Slices follow one another through three parts of the staging memory in turn, with one
// barrier per slice:
//
//   copy in 0 | barrier | combine 0, copy in 1 | barrier | copy out 0, combine 1, copy in 2 | ...
//
// A short vector is reduced as a whole by each rank: copy in | barrier | combine.
//
// A part is written again two barriers after other ranks began to copy out of it: a rank that has
// arrived at the second one has finished copying. The next call starts with the part after the last
// call's (comm/detail/progress/host_memory.hpp), so this also holds from call to call. Sums are
// formed in rank order, as in shared buffers, with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include <parx/comm/schedule/action.hpp>
#include <parx/comm/schedule/barrier.hpp>

namespace parx::inline PARX_ABI::algorithms {

/// Parts of a rank's staging memory.
inline constexpr int staging_parts = 3;

/// Input and output hold `count` elements, cut into slices of at most `most` elements. Scratch is
/// this rank's staging memory: the parts, of `most` elements each, and one more element for
/// signals. `whole`: each rank reduces the whole vector; needs count <= most.
[[nodiscard]] inline schedule staged_all_reduce(int rank, int world, std::size_t count,
                                                std::size_t most, bool whole) {
  schedule steps{.name = algorithm::staged};
  steps.slices = count == 0 ? 1 : static_cast<int>((count - 1) / most + 1);
  steps.slice_count = most;
  const std::size_t signal = most * staging_parts;
  steps.scratch_count = signal + 1;
  const auto slice_at = [&](place where, int slice) {
    region all = chunk(where, count, steps.slices, slice);
    if (where == place::scratch) {
      all.offset = static_cast<std::size_t>(slice % staging_parts) * most;
    }
    return all;
  };
  // The chunk of a slice that rank r reduces.
  const auto chunk_of = [&](place where, int slice, int r) {
    const region all = slice_at(where, slice);
    region part = chunk(where, all.count, world, r);
    part.offset += all.offset;
    return part;
  };
  // Copies the elements before and after this rank's chunk.
  const auto copy_in = [&](int slice, std::int32_t after) {
    const std::size_t size = slice_at(place::input, slice).count;
    const std::size_t begin = chunk_begin(size, world, rank);
    const std::size_t end = chunk_begin(size, world, rank + 1);
    const auto piece = [&](place where, std::size_t from, std::size_t to) {
      return region{where, slice_at(where, slice).offset + from, to - from};
    };
    after = steps.copy(piece(place::input, 0, begin), piece(place::scratch, 0, begin), after);
    return steps.copy(piece(place::input, end, size), piece(place::scratch, end, size), after);
  };

  if (whole) {
    const region copy = slice_at(place::scratch, 0);
    const std::int32_t ready = detail::append_host_barrier(
        steps, rank, world, steps.copy(slice_at(place::input, 0), copy), signal);
    steps.add({.kind = action_kind::combine,
               .from = copy,
               .to = slice_at(place::output, 0),
               .after = {ready, no_action},
               .completes = true});
    return steps;
  }
  std::int32_t ready =
      detail::append_host_barrier(steps, rank, world, copy_in(0, no_action), signal);
  for (int slice = 0; slice < steps.slices; ++slice) {
    std::int32_t done = steps.add({.kind = action_kind::combine,
                                   .from = chunk_of(place::scratch, slice, rank),
                                   .to = chunk_of(place::output, slice, rank),
                                   .after = {ready, no_action},
                                   .completes = true,
                                   .own = chunk_of(place::input, slice, rank)});
    if (slice + 1 < steps.slices) done = copy_in(slice + 1, done);
    ready = detail::append_host_barrier(steps, rank, world, done, signal);
    for (int ahead = 1; ahead < world; ++ahead) {
      const int r = wrap(rank + ahead, world);
      ready = steps.add({.kind = action_kind::fetch,
                         .peer = r,
                         .from = chunk_of(place::scratch, slice, r),
                         .to = chunk_of(place::output, slice, r),
                         .after = {ready, no_action}});
    }
  }
  return steps;
}

}  // namespace parx::algorithms
