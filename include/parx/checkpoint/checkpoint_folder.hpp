// The folder operations of checkpoint_manager: list, write, rotate, probe. Local. A folder_lock
// admits one writer at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/atomic_folder.hpp>
#include <parx/checkpoint/parts.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/signed_lock.hpp>
#include <parx/checkpoint/writer_claim.hpp>
#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

/// Whether a higher metric (accuracy) or a lower one (loss) is better.
enum class metric_goal { maximize, minimize };
/// Whether metric `a` is better than `b`; of equal ones none is.
[[nodiscard]] inline bool is_better(double a, double b, metric_goal goal) noexcept {
  return goal == metric_goal::maximize ? a > b : a < b;
}

namespace detail {

inline constexpr std::string_view checkpoint_prefix = "checkpoint-";

[[nodiscard]] std::filesystem::path checkpoint_path(const std::string& folder, std::uint64_t step);

/// The step in the name of a checkpoint's folder; nullopt for any other name.
[[nodiscard]] std::optional<std::uint64_t> step_in_name(std::string_view name);

/// Held while a checkpoint is written, so that two jobs with one folder do not mix their files.
class folder_lock {
 public:
  /// Throws errc::io if the folder does not exist or another writer holds the lock for 30 seconds.
  explicit folder_lock(const std::string& folder,
                       lock_holder other = lock_holder::may_be_another_run);

 private:
  signed_lock lock_;
};

/// Removes the hidden files of killed processes, except locks and claims. Only under a folder_lock.
void remove_stale(const std::string& folder);

/// All checkpoints whose manifest and file sizes are correct, newest first. Calls skipped(error)
/// for each other one.
template <typename Skipped>
[[nodiscard]] std::vector<saved_checkpoint> list_checkpoints(const std::string& folder,
                                                             Skipped&& skipped) {
  std::vector<std::uint64_t> steps;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (const auto step = step_in_name(entry.path().filename().string())) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
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
      skipped(reason);
    }
  }
  return found;
}

/// Creates `folder` and its parents. Throws errc::io.
void make_folders(const std::string& folder);

/// Creates `folder`. Throws errc::io unless a checkpoint of `bytes` can be saved into it, of any
/// step: no file or link has the name of one.
void probe_folder(const std::string& folder, std::uint64_t bytes);

/// Writes the files of `parts` into a hidden folder. Returns their entries for the manifest.
[[nodiscard]] std::vector<checkpoint_manifest::file> write_parts(
    const std::filesystem::path& hidden, std::uint64_t step, const checkpoint_parts& parts);

/// Writes the index files of the shards that checkpoint_parts::add_shard has put into the hidden
/// folder. Throws errc::bad_data if a shard is missing or the shards do not cover the tensors.
void add_indexes(const std::filesystem::path& hidden,
                 std::vector<checkpoint_manifest::file>& files);

/// A checkpoint that is being written: nothing appears under its name before commit(). Holds the
/// folder_lock.
class unfinished_checkpoint {
 public:
  /// `target` is the final path; `claim` that of a writer_claim, or empty. Removes the hidden files
  /// of killed processes beside it. All functions throw errc::io.
  explicit unfinished_checkpoint(const std::filesystem::path& target,
                                 const std::filesystem::path& claim = {})
      : lock_(target.parent_path().string()), folder_(cleaned(target), claim) {}

  /// The hidden folder, for its files.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return folder_.path(); }
  void commit(const checkpoint_manifest& manifest);

 private:
  [[nodiscard]] static const std::filesystem::path& cleaned(const std::filesystem::path& target) {
    remove_stale(target.parent_path().string());
    return target;
  }

  folder_lock lock_;
  atomic_folder folder_;
};

/// Removes the oldest checkpoints until `limit` are left (0: no limit), but neither `just_saved`,
/// which is known to be good, nor the best one: that of step `best_step` if it is given and exists,
/// else the one with the best metric, the oldest of equal ones.
void rotate(const std::string& folder, std::uint64_t just_saved, std::size_t limit,
            metric_goal goal, std::optional<std::uint64_t> best_step = std::nullopt);

/// Removes all checkpoints, complete or damaged, without reading them.
void remove_checkpoints(const std::string& folder);

}  // namespace detail

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/checkpoint_folder_impl.hpp>
#endif
