// saved_checkpoint: a verified checkpoint on the disk.
//
// open() reads every byte once and verifies the manifest's checksums, so that loading starts only
// from an undamaged checkpoint. Local: every rank loads for itself. Any number of threads may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_files.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/json.hpp>
#include <parx/core/source.hpp>

namespace parx::inline PARX_ABI {

/// What open() verifies.
enum class checkpoint_check {
  sizes,     ///< the manifest, and that all its files exist with the right sizes
  contents,  ///< the checksums as well: reads everything
};

namespace detail {

/// What is wrong with a file of a checkpoint; nullopt if nothing is. Throws errc::io if it cannot
/// be read.
[[nodiscard]] std::optional<std::string> fault_of_file(const std::filesystem::path& folder,
                                                       const checkpoint_manifest::file& expected,
                                                       checkpoint_check check);

}  // namespace detail

class saved_checkpoint {
 public:
  /// Throws errc::io or errc::bad_data if the manifest or a file is missing, or a size or checksum
  /// is wrong. Ranks can share the work: each verifies the contents of the files of its `mine`.
  [[nodiscard]] static saved_checkpoint open(std::filesystem::path folder,
                                             checkpoint_check check = checkpoint_check::contents,
                                             shard_place mine = {});
  /// Collective; local if `group` is nullptr. The same on all ranks, each of which verifies the
  /// contents of some of the files. If it fails on one rank, every rank throws.
  [[nodiscard]] static saved_checkpoint open_together(process_group* group,
                                                      const std::filesystem::path& folder,
                                                      call_site site = call_site::current());

  /// The path of the folder.
  [[nodiscard]] std::string path() const { return folder_.string(); }
  /// Optimizer steps that were done when it was saved.
  [[nodiscard]] std::uint64_t step() const noexcept { return manifest_.step; }
  [[nodiscard]] std::optional<double> metric() const noexcept { return manifest_.metric; }
  [[nodiscard]] const checkpoint_manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] bool contains(std::string_view file_name) const noexcept;

  /// Fills `target` with what checkpoint_parts::add(name, ...) or add_shard(name, ...) saved, at
  /// any number of ranks then and now. Each rank reads only its own parts; see load_state.
  template <typename Target>
  state_report load(std::string_view name, Target& target,
                    state_match match = state_match::strict) const {
    if (contains(std::string(name) + std::string(detail::shard_index_suffix)))
      return load_state(target, safetensors_shards(folder_, name), match);
    return load_state(target, tensors(name), match);
  }
  /// The tensors of <name>.safetensors, to be read one by one.
  [[nodiscard]] safetensors_file tensors(std::string_view name) const;
  /// The value that checkpoint_parts::add_json(name, ...) saved.
  [[nodiscard]] json::value json(std::string_view name) const;
  /// A file's contents.
  [[nodiscard]] std::string text(std::string_view file_name) const;

 private:
  explicit saved_checkpoint(std::filesystem::path folder);

  [[noreturn]] void reject(std::string_view name, std::string_view reason) const;

  [[nodiscard]] std::string file_path(std::string_view file_name) const;

  std::filesystem::path folder_;
  checkpoint_manifest manifest_;
};

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/checkpoint/detail/saved_checkpoint_impl.hpp>
#endif
