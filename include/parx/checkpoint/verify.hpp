// faults_of: finds all faults of a checkpoint or a model folder, without a model.
//
// Reads every byte that has a checksum. Local, one thread.
#pragma once

#include <algorithm>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shard_index.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/core/abi.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// An index as a text that does not depend on the order of its tensors.
[[nodiscard]] inline std::string sorted_text(shard_index index) {
  std::sort(index.tensors.begin(), index.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (auto& each : index.tensors)
    std::sort(each.parts.begin(), each.parts.end(),
              [](const auto& a, const auto& b) { return a.file < b.file; });
  return encode_index(index);
}

/// Opens every file of the index, too, and compares its header with the index.
inline void verify_shards(const std::filesystem::path& folder, const std::string& name) {
  const safetensors_shards shards(folder, name);
  for (const stored_tensor& tensor : shards.tensors()) {
    if (tensor.shape.size() <= max_rank)
      shards.for_each_source(tensor, whole_spec(tensor), [](const auto&...) {});
  }
  if (!shards.step()) return;
  const auto index = folder / (name + std::string(shard_index_suffix));
  const shard_index written = parse_index(json::parse(input_file(index.string()).whole_text()));
  if (sorted_text(index_of_files(folder, written.files)) != sorted_text(written)) {
    throw_error(errc::bad_data, "\"{}\" does not agree with the headers of its files.",
                index.string());
  }
}

}  // namespace detail

/// The names in `folder` that safetensors_shards can open: "model", "optimizer", alphabetically,
/// each a single file or an index with its files.
[[nodiscard]] inline std::vector<std::string> tensor_parts_in(const std::filesystem::path& folder) {
  constexpr std::string_view ending = ".safetensors";
  std::set<std::string> parts, members;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    const bool is_index = name.ends_with(detail::shard_index_suffix);
    if (!is_index && !name.ends_with(ending)) continue;
    parts.insert(
        name.substr(0, name.size() - (is_index ? detail::shard_index_suffix : ending).size()));
    if (!is_index) continue;
    try {
      const auto index = json::parse(detail::input_file(entry.path().string()).whole_text());
      for (const auto& [file, tensors] : detail::files_in_index(index))
        members.insert(file.substr(0, file.size() - std::min(file.size(), ending.size())));
    } catch (const json::error& /*reported when it is opened*/) {
    }
  }
  for (const std::string& member : members) parts.erase(member);
  return {parts.begin(), parts.end()};
}

/// One sentence for each fault of `path`, a folder or a safetensors file, none if it is complete:
/// files of the manifest that are missing or have another size or checksum; shards that are
/// missing, of different steps or of another model; elements of a tensor that are in no shard, or
/// in two.
[[nodiscard]] inline std::vector<std::string> faults_of(const std::filesystem::path& path) {
  std::vector<std::string> faults;
  const auto note = [&](auto&& act) {
    try {
      act();
    } catch (const std::exception& fault) {
      faults.emplace_back(fault.what());
    }
  };
  std::error_code failure;
  if (std::filesystem::is_regular_file(path, failure)) {
    note([&] { (void)safetensors_file(path.string()); });
    return faults;
  }
  const auto manifest = path / detail::manifest_name;
  if (std::filesystem::exists(manifest, failure)) {
    note([&] {
      const detail::input_file file(manifest.string());
      for (const auto& each : detail::parse_manifest(file.whole_text()).files) {
        note([&] {
          if (const auto fault = detail::fault_of_file(path, each, checkpoint_check::contents))
            faults.push_back(formatted("{}: {}", each.name, *fault));
        });
      }
    });
  }
  const auto parts = tensor_parts_in(path);
  if (parts.empty() && faults.empty())
    faults.push_back(formatted("\"{}\" holds no tensors", path.string()));
  for (const std::string& part : parts) note([&] { detail::verify_shards(path, part); });
  return faults;
}

}  // namespace parx
