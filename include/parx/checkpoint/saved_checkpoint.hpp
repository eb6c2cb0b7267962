// saved_checkpoint: a checkpoint on the disk, checked, ready to be loaded.
//
// open() reads every byte once and compares it with the manifest, so that loading begins only where
// it will succeed. Local: every rank loads for itself. Any number of threads may read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/detail/xxh64.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/core/error.hpp>
#include <parx/core/json.hpp>

namespace parx::inline PARX_ABI {

/// How much is looked at before a checkpoint is called good.
enum class checkpoint_check {
  sizes,     ///< the manifest, and that all its files have their sizes
  contents,  ///< the checksums as well: reads everything
};

namespace detail {

/// What is wrong with a file of a checkpoint, or nothing. Throws errc::io where it cannot be read.
[[nodiscard]] std::optional<std::string> fault_of_file(
    const std::filesystem::path& folder, const checkpoint_manifest::file& expected,
    checkpoint_check check);

}  // namespace detail

class saved_checkpoint {
 public:
  /// Throws errc::io or errc::bad_data with what is wrong: no manifest, a missing file, another
  /// size or checksum. Several ranks that share the work each look at the contents of some files.
  [[nodiscard]] static saved_checkpoint open(std::filesystem::path folder,
                                             checkpoint_check check = checkpoint_check::contents,
                                             shard_place mine = {});

  /// The whole path of the folder.
  [[nodiscard]] std::string path() const { return folder_.string(); }
  /// Optimizer steps that were done when it was saved.
  [[nodiscard]] std::uint64_t step() const noexcept { return manifest_.step; }
  [[nodiscard]] std::optional<double> metric() const noexcept { return manifest_.metric; }
  [[nodiscard]] const checkpoint_manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] bool contains(std::string_view file_name) const noexcept;

  /// Fills `target` from what checkpoint_parts::add(name, ...) or add_shard(name, ...) kept,
  /// whatever the number of ranks was and is, each rank reading what lies on it; see load_state.
  template <typename Target>
  state_report load(std::string_view name, Target& target,
                    state_match match = state_match::strict) const {
    if (contains(std::string(name) + std::string(detail::shard_index_suffix)))
      return load_state(target, safetensors_shards(folder_, name), match);
    return load_state(target, tensors(name), match);
  }
  /// The tensors of <name>.safetensors, to be read one by one.
  [[nodiscard]] safetensors_file tensors(std::string_view name) const {
    return safetensors_file(file_path(std::string(name) + ".safetensors"));
  }
  /// What checkpoint_parts::add_json(name, ...) kept.
  [[nodiscard]] json::value json(std::string_view name) const;
  /// A file's contents.
  [[nodiscard]] std::string text(std::string_view file_name) const {
    return detail::input_file(file_path(file_name)).whole_text();
  }

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
