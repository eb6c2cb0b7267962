// staging: copying to the nodes of a job what they do not see, and where it lies there. Pure: the
// commands, and a program's arguments with the copies' paths.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/common/container.hpp"
#include "tools/common/sent_names.hpp"
#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::slurm {

/// `words` with each path that is, or is below, a staged one replaced by that of the copy; also
/// behind an equals sign: --data=/home/u/news. `folder`: where relative paths begin.
[[nodiscard]] std::vector<std::string> with_copies(std::vector<std::string> words,
                                                   const std::vector<staged_path>& staged,
                                                   const std::filesystem::path& folder);

/// The beginning of an srun line for a step of `tasks` tasks on each of `nodes` nodes of a job.
/// `job`: its number; empty: the job in which the line is typed.
[[nodiscard]] std::vector<std::string> srun_step(const std::string& job, std::size_t nodes,
                                                 std::size_t tasks = 1);

/// The same for what runs once on each node beside the ranks.
[[nodiscard]] std::vector<std::string> on_each_node(const std::string& job, std::size_t nodes);

/// The command that removes files and folders from `nodes` nodes of a job, but not from `silent`
/// ones, which would keep it from starting anywhere.
[[nodiscard]] std::vector<std::string> removing_command(
    const std::vector<std::string>& paths, const std::string& job, std::size_t nodes,
    const std::vector<std::string>& silent = {});

/// The commands that copy one path to all nodes of a job. sbcast copies files alone, and many of
/// them slowly, so a folder goes as one archive.
[[nodiscard]] std::vector<std::vector<std::string>> staging_commands(const staged_path& path,
                                                                     const std::string& job,
                                                                     std::size_t nodes);

}  // namespace parx::slurm
