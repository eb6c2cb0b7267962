// checkpoint_manifest: manifest.json, the list of a checkpoint's files with sizes and checksums.
//
// It is written last: a folder without it is not a checkpoint. Its last member is a checksum of the
// others. It lists the shards of all ranks. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

struct checkpoint_manifest {
  struct file {
    std::string name;
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;  ///< XXH64, seed 0
  };
  std::uint64_t step = 0;             ///< optimizer steps done
  std::optional<double> metric = {};  ///< by which checkpoints are compared; none: never the best
  std::vector<file> files = {};
};

namespace detail {

inline constexpr std::string_view manifest_name = "manifest.json";

[[nodiscard]] std::string checksum_text(std::uint64_t checksum);
[[nodiscard]] std::uint64_t parse_checksum(std::string_view text);
[[nodiscard]] std::string encode_manifest(const checkpoint_manifest& manifest);

/// Throws json::error.
[[nodiscard]] checkpoint_manifest parse_manifest(std::string_view text);

}  // namespace detail

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/manifest_impl.hpp>
#endif
