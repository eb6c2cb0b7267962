// faults_of: finds all faults of a checkpoint or a model folder, without a model.
//
// Reads every byte that has a checksum. Local, one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The names in `folder` that safetensors_shards can open: "model", "optimizer", alphabetically,
/// each a single file or an index with its files.
[[nodiscard]] std::vector<std::string> tensor_parts_in(const std::filesystem::path& folder);

/// One sentence for each fault of `folder`, none if it is complete: files of the manifest that are
/// missing or have another size or checksum; shards that are missing, of different steps or of
/// another model; elements of a tensor that are in no shard, or in two.
[[nodiscard]] std::vector<std::string> faults_of(const std::filesystem::path& folder);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/verify_impl.hpp>
#endif
