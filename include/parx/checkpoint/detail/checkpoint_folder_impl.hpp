// Definitions of checkpoint_folder.hpp.
#pragma once

#include <sys/statvfs.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <map>

#include <parx/checkpoint/checkpoint_folder.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/parse_number.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::filesystem::path checkpoint_path(const std::string& folder, std::uint64_t step) {
  return std::filesystem::path(folder) / formatted("{}{}", checkpoint_prefix, step);
}

PARX_INLINE std::optional<std::uint64_t> step_in_name(std::string_view name) {
  if (!name.starts_with(checkpoint_prefix)) return std::nullopt;
  return parse_number<std::uint64_t>(name.substr(checkpoint_prefix.size()));
}

PARX_INLINE folder_lock::folder_lock(const std::string& folder, lock_holder other)
    : lock_(folder + "/" + std::string(stale_prefix) + "lock", other, std::chrono::seconds(30)) {
  if (lock_.is_held()) return;
  throw_error(errc::io,
              "another process ({}) has been saving into \"{}\" for 30 s. Give each run a folder "
              "of its own.",
              lock_.holder(), folder);
}

PARX_INLINE void remove_stale(const std::string& folder) {
  std::error_code failure;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(stale_prefix) && !name.starts_with(claim_prefix) &&
        !name.ends_with("lock")) {
      stale.push_back(entry.path());
    }
  }
  for (const auto& path : stale) std::filesystem::remove_all(path, failure);
}

PARX_INLINE void make_folders(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure || !std::filesystem::is_directory(folder)) {
    const int reason = failure ? failure.value() : ENOTDIR;
    throw_error(errc::io, "cannot create the folder \"{}\": {}. {}", folder, errno_text(reason),
                advice_for(reason));
  }
}

[[nodiscard]] PARX_INLINE checkpoint_manifest::file write_text(const std::filesystem::path& hidden,
                                                               const std::string& name,
                                                               std::string_view text) {
  return write_staged(hidden, name, [&](auto&& write) { write(std::as_bytes(std::span(text))); });
}

PARX_INLINE void probe_folder(const std::string& folder, std::uint64_t bytes) {
  make_folders(folder);
  const folder_lock lock(folder);
  remove_stale(folder);
  const auto target = std::filesystem::path(folder) / (std::string(stale_prefix) + "probe");
  {
    atomic_folder trial(target);
    (void)write_text(trial.path(), "file", "probe");
    trial.commit();
  }
  remove_folder(target);
  std::error_code failure;  // a dangling link is no folder
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const bool has_name = step_in_name(entry.path().filename().string()).has_value();
    if (has_name && !entry.is_directory(failure)) require_place_for_folder(entry.path());
  }
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

PARX_INLINE std::vector<checkpoint_manifest::file> write_parts(const std::filesystem::path& hidden,
                                                               std::uint64_t step,
                                                               const checkpoint_parts& parts) {
  std::vector<checkpoint_manifest::file> files;
  for (const auto& file : parts.tensor_files()) {
    checkpoint_metadata metadata = file.metadata;
    if (metadata.contains(std::string(parts_key)))
      metadata[std::string(step_key)] = formatted("{}", step);
    files.push_back(write_staged(
        hidden, file.name, [&](auto&& write) { put_safetensors(file.tensors, metadata, write); }));
  }
  for (const auto& file : parts.text_files())
    files.push_back(write_text(hidden, file.name, file.text));
  return files;
}

PARX_INLINE void add_indexes(const std::filesystem::path& hidden,
                             std::vector<checkpoint_manifest::file>& files) {
  std::map<std::string, std::vector<std::string>, std::less<>> shards;  // by the name before -0000i
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
      throw_error(
          errc::bad_data, "no rank has written {}.safetensors. {}",
          shard_name(name, {static_cast<std::size_t>(missing - names.begin()), names.size()}),
          earlier_ones_untouched);
    }
    files.push_back(write_text(hidden, name + std::string(shard_index_suffix),
                               encode_index(index_of_files(hidden, names))));
  }
}

PARX_INLINE void unfinished_checkpoint::commit(const checkpoint_manifest& manifest) {
  folder_.require_claim();
  (void)write_text(path(), std::string(manifest_name), encode_manifest(manifest));
  folder_.commit();
}

PARX_INLINE void rotate(const std::string& folder, std::uint64_t just_saved, std::size_t limit,
                        metric_goal goal, std::optional<std::uint64_t> best_step) {
  if (limit == 0) return;
  const auto all = list_checkpoints(folder, [](const error& /*reported when loading*/) {});
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

PARX_INLINE void remove_checkpoints(const std::string& folder) {
  const folder_lock lock(folder);
  std::error_code failure;
  std::vector<std::filesystem::path> present;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    if (step_in_name(entry.path().filename().string())) present.push_back(entry.path());
  }
  for (const auto& path : present) remove_folder(path);
}

}  // namespace parx::detail
