// shard_index: which part of which tensor is in which file, <name>.safetensors.index.json.
//
//   {"metadata": {"total_size": 401408, "format": "parx shards 1", "step": 500},
//    "weight_map": {"0.weight": "model-00001-of-00002.safetensors"},
//    "files": ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"],
//    "parts": {"0.weight": {"dtype": "F32", "shape": [128, 784],
//                           "in": [[0, {"cuts": [[0, 0, 64]]}], [1, {"cuts": [[0, 64, 128]]}]]}}}
//
// metadata and weight_map are as in Hugging Face's model.safetensors.index.json; the map has the
// file of a tensor's first element. Parts are written as in shard_layout.hpp. The index is made
// from the headers of the files, so that a reader opens only the files that it needs. Each element
// of each tensor is in exactly one file: checked when an index is made and when it is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <parx/checkpoint/detail/header.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_layout.hpp>
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
    std::vector<placed_part> parts = {};
  };
  std::uint64_t step = 0;
  std::vector<std::string> files = {};
  std::vector<tensor> tensors = {};
};

/// Bytes of an element of a type of a safetensors file. Throws json::error for a type that parx
/// does not support.
[[nodiscard]] std::size_t element_bytes(std::string_view dtype_name);

/// Throws errc::bad_data if a tensor of the index has holes or overlaps; the message names `path`.
void require_whole(const shard_index& index, const std::string& path);

/// The index made from the headers of `files` in `folder`. Throws errc::io, errc::bad_data: files
/// that disagree about a tensor's shape or type, files of different steps, holes, overlaps.
[[nodiscard]] shard_index index_of_files(const std::filesystem::path& folder,
                                         const std::vector<std::string>& files);

[[nodiscard]] std::string encode_index(const shard_index& index);

/// Whether this is such an index, not one of Hugging Face's.
[[nodiscard]] bool is_shard_index(const json::value& whole);

/// Throws json::error, or usage_error for parts that are outside of a tensor's shape.
[[nodiscard]] shard_index parse_index(const json::value& whole);

}  // namespace parx::detail

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/shard_index_impl.hpp>
#endif
