// The tensors at a path of parx_checkpoint, and what it says of one where none are. A run's
// output_dir has none itself: its checkpoints are in folders below.
#pragma once

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/verify.hpp>
#include <parx/core/check.hpp>

namespace examples {

namespace detail {

/// Whether it is a checkpoint, whole or damaged, or has the files of a model.
[[nodiscard]] inline bool holds_tensors(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / "manifest.json") ||
         !parx::tensor_parts_in(folder).empty();
}

/// The folders in `path` that hold tensors: "model", "checkpoint-500", "checkpoint-1000".
[[nodiscard]] inline std::vector<std::string> checkpoints_below(const std::filesystem::path& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_directory() && holds_tensors(entry.path()))
      names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  });
  return names;
}

}  // namespace detail

/// The folder or file that `path` names, as "model" may name model.safetensors. Throws
/// parx::usage_error if there are no tensors there; it names those that are below.
[[nodiscard]] inline std::filesystem::path with_tensors(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const std::string name = path.string();
  if (!fs::exists(path)) {
    parx::require(fs::exists(name + ".safetensors"), "there is no \"{}\"", name);
    return name + ".safetensors";
  }
  if (!fs::is_directory(path) || detail::holds_tensors(path)) return path;
  const auto below = detail::checkpoints_below(path);
  parx::require(!below.empty(),
                "\"{}\" has no .safetensors files, and no checkpoints in the folders below", name);
  parx::throw_usage("\"{}\" is the folder of a run, whose checkpoints are below: give \"{}\"{}",
                    name, (path / below.back()).string(),
                    below.size() == 1 ? "" : fmt::format(" (of {})", fmt::join(below, ", ")));
}

/// The tensors of `part` at `path`: those of a file, or in a folder.
[[nodiscard]] inline parx::safetensors_shards tensors_of(const std::filesystem::path& path,
                                                         const std::string& part) {
  return std::filesystem::is_directory(path) ? parx::safetensors_shards(path, part)
                                             : parx::safetensors_shards::of_file(path);
}

/// The parts at `named` by name: "model", "optimizer". A single file counts as a model.
[[nodiscard]] inline std::map<std::string, parx::safetensors_shards> tensors_at(
    const std::filesystem::path& named) {
  const std::filesystem::path path = with_tensors(named);
  std::map<std::string, parx::safetensors_shards> parts;
  if (!std::filesystem::is_directory(path)) {
    parts.emplace("model", tensors_of(path, "model"));
  } else {
    for (const std::string& name : parx::tensor_parts_in(path))
      parts.emplace(name, tensors_of(path, name));
  }
  return parts;
}

}  // namespace examples
