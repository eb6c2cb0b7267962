// What parx_checkpoint says of a path where no tensors are. A run's output_dir has none itself: its
// checkpoints are in folders below.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/ranges.h>

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

/// Throws parx::usage_error if there are no tensors at `path`; it names those that are below.
inline void require_tensors_at(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const std::string name = path.string();
  parx::require(fs::exists(path) || fs::exists(name + ".safetensors"), "there is no \"{}\"", name);
  if (!fs::is_directory(path) || detail::holds_tensors(path)) return;
  const auto below = detail::checkpoints_below(path);
  parx::require(!below.empty(),
                "\"{}\" has no .safetensors files, and no checkpoints in the folders below", name);
  parx::throw_usage("\"{}\" is the folder of a run, whose checkpoints are below: give \"{}\"{}",
                    name, (path / below.back()).string(),
                    below.size() == 1 ? "" : fmt::format(" (of {})", fmt::join(below, ", ")));
}

}  // namespace examples
