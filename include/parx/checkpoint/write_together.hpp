// write_alone and write_together: one checkpoint, written by one process, or by all ranks of a
// group, each its own files.
//
// Committed once: rank 0 makes the hidden folder, every rank writes and flushes its files in it.
// When all have done so and rank 0 sees the files, it writes the manifest and renames the folder.
// Where a rank fails or dies before, nothing appears, and all others throw with the reason. The
// folder is in a file system that all ranks see. A few short collectives; no data are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/comm/collectives/object.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline shard_place place_in(const process_group& group) {
  return {static_cast<std::size_t>(group.rank()), static_cast<std::size_t>(group.size())};
}

/// What checkpoint_manager::save was asked for; see there.
struct save_plan {
  std::filesystem::path target;  ///< the folder that is to appear
  std::uint64_t step = 0;
  std::optional<double> metric = {};
  std::optional<std::uint64_t> best_step = {};
  std::size_t limit = 0;
  metric_goal goal = metric_goal::maximize;
  call_site site = {};
};

void commit(const save_plan& plan, unfinished_checkpoint& made,
            std::vector<checkpoint_manifest::file> files);

/// Local. Throws errc::io.
void write_alone(const save_plan& plan, const checkpoint_parts& parts);

/// Collective. `mine` are the parts that this rank writes. Throws errc::io on every rank.
void write_together(process_group& group, const save_plan& plan,
                           const checkpoint_parts& mine);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/write_together_impl.hpp>
#endif
