// What checkpoint_manager does with its folder: list, write, rotate, probe. Local; one writer at a
// time, which folder_lock sees to.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
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

[[nodiscard]] inline std::filesystem::path checkpoint_path(const std::string& folder,
                                                           std::uint64_t step) {
  return std::filesystem::path(folder) / fmt::format("{}{}", checkpoint_prefix, step);
}

/// The step of a checkpoint's folder of this name; nullopt for any other name.
[[nodiscard]] inline std::optional<std::uint64_t> step_in_name(std::string_view name) {
  if (!name.starts_with(checkpoint_prefix)) return std::nullopt;
  std::uint64_t step = 0;
  const char* const end = name.data() + name.size();
  const auto [stop, code] = std::from_chars(name.data() + checkpoint_prefix.size(), end, step);
  if (code != std::errc{} || stop != end) return std::nullopt;
  return step;
}

[[nodiscard]] inline bool is_better(double a, double b, metric_goal goal) noexcept {
  return goal == metric_goal::maximize ? a > b : a < b;
}

/// Locks an open file against other processes until it is closed; false where another keeps it all
/// the while. True on a file system without locks, as if there were one job, as there should be.
[[nodiscard]] inline bool lock_within(const descriptor& file, std::chrono::seconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

/// Held while a checkpoint is written, so that two jobs with one folder do not mix. The kernel lets
/// go of it when the process ends, however it ends.
class folder_lock {
 public:
  /// Throws errc::io when the folder does not exist or another writer keeps it for 30 seconds.
  explicit folder_lock(const std::string& folder) {
    const std::string path = folder + "/" + std::string(stale_prefix) + "lock";
    file_ = descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!file_.valid()) {
      throw_error(errc::io, "cannot save into \"{}\": {}. {}", folder, errno_text(errno),
                  advice_for(errno));
    }
    if (!lock_within(file_, std::chrono::seconds(30))) {
      throw_error(errc::io,
                  "another process has been saving into \"{}\" for 30 s. Give each run a folder "
                  "of its own.",
                  folder);
    }
  }

 private:
  descriptor file_;
};

/// Removes what killed processes left behind, but no locks. Only under a folder_lock.
inline void remove_stale(const std::string& folder) {
  std::error_code failure;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stale_prefix) && !name.ends_with("lock"))
      stale.push_back(entry.path());
  }
  for (const auto& path : stale) std::filesystem::remove_all(path, failure);
}

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
inline void make_folders(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || !std::filesystem::is_directory(folder)) {
    const int reason = failure ? failure.value() : ENOTDIR;
    throw_error(errc::io, "cannot create the folder \"{}\": {}. {}", folder, errno_text(reason),
                advice_for(reason));
  }
}

/// Throws errc::io unless a checkpoint of `bytes` can be saved into `folder`, which is created.
inline void probe_folder(const std::string& folder, std::uint64_t bytes) {
  make_folders(folder);
  const folder_lock lock(folder);
  remove_stale(folder);
  const auto target = std::filesystem::path(folder) / (std::string(stale_prefix) + "probe");
  {
    staged_folder trial(target);
    (void)trial.add("file", [](auto&& write) { write(std::as_bytes(std::span("probe"))); });
    trial.commit();
  }
  remove_folder(target);
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) return;
  const std::uint64_t left = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (left < bytes) {
    throw_error(errc::io,
                "a checkpoint takes {} bytes, but \"{}\" has {} left. Free some space or save "
                "elsewhere.",
                bytes, folder, left);
  }
}

[[nodiscard]] inline checkpoint_manifest::file write_text(const std::filesystem::path& hidden,
                                                          const std::string& name,
                                                          std::string_view text) {
  return write_staged(hidden, name, [&](auto&& write) { write(std::as_bytes(std::span(text))); });
}

/// Writes the files of `parts` into a hidden folder. Returns what the manifest says about them.
[[nodiscard]] inline std::vector<checkpoint_manifest::file> write_parts(
    const std::filesystem::path& hidden, std::uint64_t step, const checkpoint_parts& parts) {
  std::vector<checkpoint_manifest::file> files;
  for (const auto& file : parts.tensor_files()) {
    checkpoint_metadata metadata = file.metadata;
    if (metadata.contains(std::string(parts_key)))
      metadata[std::string(step_key)] = fmt::format("{}", step);
    files.push_back(write_staged(hidden, file.name, [&](auto&& write) {
      put_safetensors(file.tensors, metadata, write);
    }));
  }
  for (const auto& file : parts.text_files())
    files.push_back(write_text(hidden, file.name, file.text));
  return files;
}

/// Adds the index of all that checkpoint_parts::add_shard has put into the hidden folder. Throws
/// errc::bad_data where a shard is missing, or all together are not the whole.
inline void add_indexes(const std::filesystem::path& hidden,
                        std::vector<checkpoint_manifest::file>& files) {
  std::map<std::string, std::vector<std::string>, std::less<>> shards;  // by what they are parts of
  for (const auto& file : files) {
    const auto shard = parse_shard_name(file.name);
    if (!shard) continue;
    auto& names = shards[shard->name];
    names.resize(std::max(names.size(), shard->place.count));
    names[shard->place.index] = file.name;
  }
  for (const auto& [name, names] : shards) {
    const auto is_there = [](const std::string& file) { return !file.empty(); };
    const auto first = std::find_if(names.begin(), names.end(), is_there);
    if (!safetensors_file((hidden / *first).string()).metadata().contains(std::string(parts_key)))
      continue;
    const auto missing = std::find_if_not(names.begin(), names.end(), is_there);
    if (missing != names.end()) {
      throw_error(errc::bad_data, "no rank has written {}.safetensors. {}",
                  shard_name(name, {static_cast<std::size_t>(missing - names.begin()),
                                    names.size()}),
                  earlier_ones_untouched);
    }
    files.push_back(write_text(hidden, name + std::string(shard_index_suffix),
                               encode_index(index_of_files(hidden, names))));
  }
}

/// A checkpoint that is being made, alone in its folder: nothing is there until commit().
class unfinished_checkpoint {
 public:
  /// Of a folder that is to be `target`. Removes what killed processes left behind beside it.
  /// Throws errc::io, as everything here.
  explicit unfinished_checkpoint(const std::filesystem::path& target)
      : lock_(target.parent_path().string()), staged_(cleaned(target)) {}

  /// Where its files go.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return staged_.path(); }
  void commit(const checkpoint_manifest& manifest) {
    const std::string text = encode_manifest(manifest);
    (void)staged_.add(std::string(manifest_name),
                      [&](auto&& write) { write(std::as_bytes(std::span(text))); });
    staged_.commit();
  }

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
inline void rotate(const std::string& folder, std::uint64_t just_saved, std::size_t limit,
                   metric_goal goal, std::optional<std::uint64_t> best_step = std::nullopt) {
  if (limit == 0) return;
  const auto all = list_checkpoints(folder, [](const error& /*told when loading*/) {});
  const saved_checkpoint* best = nullptr;
  for (const saved_checkpoint& one : all) {  // newest first
    if (one.metric() && (best == nullptr || !is_better(*best->metric(), *one.metric(), goal)))
      best = &one;
  }
  for (const saved_checkpoint& one : all) {
    if (best_step == one.step()) best = &one;
  }
  std::size_t kept = all.size();
  for (auto oldest = all.rbegin(); oldest != all.rend() && kept > limit; ++oldest) {
    if (oldest->step() == just_saved || &*oldest == best) continue;
    remove_folder(oldest->path());
    --kept;
  }
}

/// Removes all checkpoints, whole or damaged, without reading them.
inline void remove_checkpoints(const std::string& folder) {
  const folder_lock lock(folder);
  std::error_code failure;
  std::vector<std::filesystem::path> present;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (step_in_name(entry.path().filename().string())) present.push_back(entry.path());
  }
  for (const auto& path : present) remove_folder(path);
}

}  // namespace detail

}  // namespace parx
