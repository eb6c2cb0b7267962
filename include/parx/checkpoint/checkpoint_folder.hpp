// What checkpoint_manager does with its folder: list, write, rotate, probe. Local; one writer at a
// time, which folder_lock sees to.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/staged_folder.hpp>
#include <parx/core/descriptor.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

/// Whether a higher metric (accuracy) or a lower one (loss) is better.
enum class metric_goal { maximize, minimize };

namespace detail {

inline constexpr std::string_view checkpoint_prefix = "checkpoint-";

[[nodiscard]] std::filesystem::path checkpoint_path(const std::string& folder,
                                                           std::uint64_t step);

/// The step of a checkpoint's folder of this name; nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> step_in_name(std::string_view name);

[[nodiscard]] inline bool is_better(double a, double b, metric_goal goal) noexcept {
  return goal == metric_goal::maximize ? a > b : a < b;
}

/// Locks an open file against other processes until it is closed; false where another keeps it all
/// the while. True on a file system without locks, as if there were one job, as there should be.
[[nodiscard]] bool lock_within(const descriptor& file, std::chrono::seconds patience);

/// Held while a checkpoint is written, so that two jobs with one folder do not mix. The kernel lets
/// go of it when the process ends, however it ends.
class folder_lock {
 public:
  /// Throws errc::io when the folder does not exist or another writer keeps it for 30 seconds.
  explicit folder_lock(const std::string& folder);

 private:
  descriptor file_;
};

/// Removes what killed processes left behind, but no locks. Only under a folder_lock.
void remove_stale(const std::string& folder);

/// All folders whose manifest and sizes are right, newest first; pass_over(error) for each other.
template <typename PassOver>
[[nodiscard]] std::vector<saved_checkpoint> list_checkpoints(const std::string& folder,
                                                             PassOver&& pass_over) {
  std::vector<std::uint64_t> steps;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (const auto step = step_in_name(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  std::reverse(steps.begin(), steps.end());
  std::vector<saved_checkpoint> found;
  for (const std::uint64_t step : steps) {
    const std::filesystem::path path = checkpoint_path(folder, step);
    try {
      found.push_back(saved_checkpoint::open(path, checkpoint_check::sizes));
      if (found.back().step() != step) {
        found.pop_back();
        throw_error(errc::bad_data, "\"{}\" is damaged: its manifest is that of another step.",
                    path.string());
      }
    } catch (const error& reason) {
      pass_over(reason);
    }
  }
  return found;
}

/// Creates `folder`, and those above it. Throws errc::io.
void make_folders(const std::string& folder);

/// Throws errc::io unless a checkpoint of `bytes` can be saved into `folder`, which is created.
void probe_folder(const std::string& folder, std::uint64_t bytes);

/// Writes the files of `parts` into a hidden folder. Returns what the manifest says about them.
[[nodiscard]] std::vector<checkpoint_manifest::file> write_parts(
    const std::filesystem::path& hidden, std::uint64_t step, const checkpoint_parts& parts);

/// Adds the index of all that checkpoint_parts::add_shard has put into the hidden folder. Throws
/// errc::bad_data where a shard is missing, or all together are not the whole.
void add_indexes(const std::filesystem::path& hidden,
                 std::vector<checkpoint_manifest::file>& files);

/// A checkpoint that is being made, alone in its folder: nothing is there until commit().
class unfinished_checkpoint {
 public:
  /// Of a folder that is to be `target`. Removes what killed processes left behind beside it.
  /// Throws errc::io, as everything here.
  explicit unfinished_checkpoint(const std::filesystem::path& target)
      : lock_(target.parent_path().string()), staged_(cleaned(target)) {}

  /// Where its files go.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return staged_.path(); }
  void commit(const checkpoint_manifest& manifest);

 private:
  [[nodiscard]] static const std::filesystem::path& cleaned(const std::filesystem::path& target) {
    remove_stale(target.parent_path().string());
    return target;
  }

  folder_lock lock_;
  staged_folder staged_;
};

/// Removes the oldest checkpoints until `limit` are left (0: no limit), but neither `just_saved`,
/// which is known to be good, nor the best one: that of step `best_step` where there is one, else
/// that with the best metric, of equal ones the oldest.
void rotate(const std::string& folder, std::uint64_t just_saved, std::size_t limit,
            metric_goal goal, std::optional<std::uint64_t> best_step = std::nullopt);

/// Removes all checkpoints, whole or damaged, without reading them.
void remove_checkpoints(const std::string& folder);

}  // namespace detail

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/checkpoint_folder_impl.hpp>
#endif
