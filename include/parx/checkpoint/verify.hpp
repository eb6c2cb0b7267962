// faults_of: all that is wrong with a checkpoint or a model folder, found without a model.
//
// Reads every byte that has a checksum. Local, one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI {

/// What of a folder safetensors_shards opens: "model", "optimizer", in the order of the alphabet;
/// single files and those that an index names.
[[nodiscard]] std::vector<std::string> tensor_parts_in(const std::filesystem::path& folder);

/// A sentence for each thing that is wrong with `folder`; none where it is whole: files of the
/// manifest that are missing, have another size or checksum; shards that are missing, of several
/// steps or of another model; elements of a tensor that are in no shard, or in two.
[[nodiscard]] std::vector<std::string> faults_of(const std::filesystem::path& folder);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/verify_impl.hpp>
#endif
