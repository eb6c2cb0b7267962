// shard_index: which part of which tensor is in which file, <name>.safetensors.index.json.
//
//   {"metadata": {"total_size": 401408, "format": "parx shards 1", "step": 500},
//    "weight_map": {"0.weight": "model-00001-of-00002.safetensors"},
//    "files": ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
//    "parts": {"0.weight": {"dtype": "F32", "shape": [128, 784],
//                           "in": [[0, {"cuts": [[0, 0, 64]]}], [1, {"cuts": [[0, 64, 128]]}]]}}}
//
// metadata and weight_map are as in Hugging Face's model.safetensors.index.json; the map has the
// file of a tensor's first element. Parts are written as in shard_files.hpp. The index is made
// from the headers of the files, so that a reader opens only the files that it needs. Each element
// of each tensor is in exactly one file: checked when an index is made and when it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/detail/header.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI::detail {

inline constexpr std::string_view shard_index_suffix = ".safetensors.index.json";
inline constexpr std::string_view shard_index_format = "parx shards 1";
// Keys of the __metadata__ of a file.
inline constexpr std::string_view parts_key = "parx.parts";
inline constexpr std::string_view step_key = "parx.step";

struct shard_index {
  struct tensor {
    std::string name;
    std::string dtype_name;
    parx::shape shape;
    std::vector<placed_shard> parts = {};
  };
  std::uint64_t step = 0;
  std::vector<std::string> files = {};
  std::vector<tensor> tensors = {};
};

/// Bytes of an element of a type of a safetensors file. Throws json::error for a type that parx
/// does not support.
[[nodiscard]] inline std::size_t element_bytes(std::string_view dtype_name) {
  const safetensors_type* const known = find_type(dtype_name);
  if (known != nullptr && known->type) return size_of(*known->type);
  throw json::error(formatted("parts of a tensor of type \"{}\"", dtype_name));
}

/// Throws errc::bad_data if a tensor of the index has holes or overlaps; the message names `path`.
inline void require_whole(const shard_index& index, const std::string& path) {
  for (const auto& each : index.tensors) {
    const auto fault =
        coverage_fault(each.shape, each.parts, [&](std::size_t file) { return index.files[file]; });
    if (fault)
      throw_error(errc::bad_data, "\"{}\": the parts of \"{}\" are not the whole: {}.", path,
                  each.name, *fault);
  }
}

/// The index made from the headers of `files` in `folder`. Throws errc::io, errc::bad_data: files
/// that disagree about a tensor's shape or type, files of different steps, holes, overlaps.
[[nodiscard]] inline shard_index index_of_files(const std::filesystem::path& folder,
                                                const std::vector<std::string>& files) {
  shard_index index{.files = files};
  std::map<std::string, std::size_t, std::less<>> by_name;
  for (std::size_t number = 0; number < files.size(); ++number) {
    const safetensors_file file((folder / files[number]).string());
    const auto reject = [&](const std::string& reason) {
      throw_error(errc::bad_data, "\"{}\": {}.", file.path(), reason);
    };
    try {
      const auto held = [&](std::string_view key) -> const std::string& {
        const auto found = file.metadata().find(std::string(key));
        if (found == file.metadata().end())
          throw json::error(formatted("there is no \"{}\" in its header", key));
        return found->second;
      };
      const json::value parts = json::parse(held(parts_key));
      const auto step = json::parse(held(step_key)).as<std::uint64_t>();
      if (number == 0) index.step = step;
      if (index.step != step)
        reject(formatted("it is of step {}, but {} is of step {}", step, files[0], index.step));
      std::map<std::string_view, const json::value*> part_of;
      for (const auto& [name, part] : parts.members()) part_of[name] = &part;
      for (const stored_tensor& stored : file.tensors()) {
        const auto part = part_of.find(stored.name);
        const std::size_t bytes = element_bytes(stored.dtype_name);
        shard_spec spec =
            part == part_of.end()
                ? whole_spec(stored)
                : cuts_from_json(shape_from_json(part->second->at("shape"), bytes), *part->second);
        const parx::shape& whole = spec.global_shape();
        if (spec.size() * bytes != stored.end - stored.begin)
          reject(formatted("\"{}\" has another size than {}", stored.name, spec.text()));
        const auto [entry, is_new] = by_name.try_emplace(stored.name, index.tensors.size());
        if (is_new) index.tensors.push_back({stored.name, stored.dtype_name, whole});
        auto& tensor = index.tensors[entry->second];
        if (tensor.shape != whole || tensor.dtype_name != stored.dtype_name) {
          reject(formatted("\"{}\" is {} {} here and {} {} in {}", stored.name, stored.dtype_name,
                           to_string(whole), tensor.dtype_name, to_string(tensor.shape),
                           files[tensor.parts.front().file]));
        }
        tensor.parts.push_back({number, std::move(spec)});
      }
    } catch (const json::error& failure) {
      reject(formatted("it is no shard that parx wrote: {}", failure.what()));
    } catch (const usage_error& failure) {
      reject(formatted("it is damaged: {}", failure.what()));
    }
  }
  require_whole(index, folder.string());
  return index;
}

[[nodiscard]] inline std::string encode_index(const shard_index& index) {
  std::uint64_t total = 0;
  std::string map, parts;  // a line for each tensor
  const auto add = [](std::string& lines, const std::string& name, const json::value& held) {
    lines += (lines.empty() ? "\n  " : ",\n  ") + json::quote(name) + ": " + json::dump(held);
  };
  for (const auto& each : index.tensors) {
    total += each.shape.size() * element_bytes(each.dtype_name);
    json::array in;
    const placed_shard* first = &each.parts.front();
    for (const placed_shard& part : each.parts) {
      in.push_back(json::array{part.file, cuts_to_json(part.spec)});
      if (part.spec.size() > 0 && part.spec.run_at(0).global == 0) first = &part;
    }
    add(map, each.name, index.files[first->file]);
    add(parts, each.name,
        json::object{{"dtype", each.dtype_name}, {"shape", shape_to_json(each.shape)}, {"in", in}});
  }
  const json::object metadata{
      {"total_size", total}, {"format", shard_index_format}, {"step", index.step}};
  return formatted(
      "{{\"metadata\": {},\n \"weight_map\": {{{}}},\n \"files\": {},\n \"parts\": {{{}}}}}\n",
      json::dump(metadata), map, json::dump(json::array(index.files.begin(), index.files.end())),
      parts);
}

/// Whether this is such an index, not one of Hugging Face's.
[[nodiscard]] inline bool is_shard_index(const json::value& whole) {
  const json::value* const metadata = whole.find("metadata");
  const json::value* const format = metadata == nullptr ? nullptr : metadata->find("format");
  return format != nullptr && *format == json::value(shard_index_format);
}

/// Throws json::error, or usage_error for parts that are outside of a tensor's shape.
[[nodiscard]] inline shard_index parse_index(const json::value& whole) {
  shard_index index{.step = whole.at("metadata").as<std::uint64_t>("step")};
  for (const json::value& file : whole.at("files").elements()) index.files.push_back(file.text());
  for (const auto& [name, tensor] : whole.at("parts").members()) {
    const std::string& dtype_name = tensor.at("dtype").text();
    index.tensors.push_back(
        {name, dtype_name, shape_from_json(tensor.at("shape"), element_bytes(dtype_name))});
    auto& made = index.tensors.back();
    for (const json::value& place : tensor.at("in").elements()) {
      const json::array& pair = place.elements();
      if (pair.size() != 2 || pair[0].as<std::size_t>() >= index.files.size())
        throw json::error(formatted("\"{}\" is in no file of the index", name));
      made.parts.push_back({pair[0].as<std::size_t>(), cuts_from_json(made.shape, pair[1])});
    }
  }
  return index;
}

}  // namespace parx::detail
