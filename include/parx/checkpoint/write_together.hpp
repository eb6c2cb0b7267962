// write_alone and write_together: write one checkpoint from one process, or from all ranks of a
// group, each of which writes its own files.
//
// write_together: rank 0 creates a hidden folder, and every rank writes and flushes its files
// there. When all have finished and rank 0 sees the files, it writes the manifest and renames the
// folder. If a rank fails or dies before, nothing appears, and all others throw with the reason.
// The folder must be in a file system that all ranks share. Needs a few short collectives; no
// tensor data are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI::detail {

/// The arguments of checkpoint_manager::save; see there.
struct save_plan {
  std::filesystem::path target;  ///< the final path of the folder
  std::uint64_t step = 0;
  std::optional<double> metric = {};
  std::optional<std::uint64_t> best_step = {};
  std::size_t limit = 0;
  metric_goal goal = metric_goal::maximize;
  call_site site = {};
  std::filesystem::path claim = {};  ///< at rank 0: that of its writer_claim, or empty
};

/// Local. Throws errc::io.
void write_alone(const save_plan& plan, const checkpoint_parts& parts);

/// Collective. `mine` are the parts that this rank writes. Throws errc::io on every rank.
void write_together(process_group& group, const save_plan& plan, const checkpoint_parts& mine);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/write_together_impl.hpp>
#endif
