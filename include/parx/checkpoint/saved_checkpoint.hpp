// saved_checkpoint: a verified checkpoint on the disk.
//
// open() reads every byte once and verifies the manifest's checksums, so that loading starts only
// from an undamaged checkpoint. Local: every rank loads for itself. Any number of threads may read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/detail/xxh64.hpp>
#include <parx/checkpoint/manifest.hpp>
#include <parx/checkpoint/safetensors.hpp>
#include <parx/checkpoint/shard_layout.hpp>
#include <parx/checkpoint/shards.hpp>
#include <parx/checkpoint/state.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
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
[[nodiscard]] inline std::optional<std::string> fault_of_file(
    const std::filesystem::path& folder, const checkpoint_manifest::file& expected,
    checkpoint_check check) {
  std::error_code failure;
  const auto path = folder / expected.name;
  if (!std::filesystem::is_regular_file(path, failure)) return "it is missing";
  const input_file file(path.string());
  if (file.size() != expected.bytes)
    return formatted("it has {} bytes, expected {}", file.size(), expected.bytes);
  if (check == checkpoint_check::sizes) return std::nullopt;
  xxh64 checksum;
  std::vector<std::byte> piece(
      static_cast<std::size_t>(std::min<std::uint64_t>(1U << 20U, expected.bytes)));
  for (std::uint64_t at = 0; at < expected.bytes; at += piece.size()) {
    const auto part = std::span(piece).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), expected.bytes - at)));
    file.read(at, part);
    checksum.update(part);
  }
  if (checksum.value() == expected.checksum) return std::nullopt;
  return formatted("its checksum is {}, expected {}", checksum_text(checksum.value()),
                   checksum_text(expected.checksum));
}

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
                                                      call_site site = call_site::current()) {
    const shard_place mine = group == nullptr ? shard_place{} : place_in(*group);
    std::optional<saved_checkpoint> found;
    detail::agree(group, site, [&] { found = open(folder, checkpoint_check::contents, mine); });
    return std::move(*found);
  }

  /// The path of the folder.
  [[nodiscard]] std::string path() const { return folder_.string(); }
  /// Optimizer steps that were done when it was saved.
  [[nodiscard]] std::uint64_t step() const noexcept { return manifest_.step; }
  [[nodiscard]] std::optional<double> metric() const noexcept { return manifest_.metric; }
  [[nodiscard]] const checkpoint_manifest& manifest() const noexcept { return manifest_; }
  [[nodiscard]] bool contains(std::string_view file_name) const noexcept {
    return std::any_of(manifest_.files.begin(), manifest_.files.end(),
                       [&](const auto& file) { return file.name == file_name; });
  }

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
  [[nodiscard]] safetensors_file tensors(std::string_view name) const {
    return safetensors_file(file_path(std::string(name) + ".safetensors"));
  }
  /// The value that checkpoint_parts::add_json(name, ...) saved.
  [[nodiscard]] json::value json(std::string_view name) const {
    const std::string file_name = std::string(name) + ".json";
    try {
      return json::parse(text(file_name));
    } catch (const json::error& reason) {
      throw_error(errc::bad_data, "\"{}\" is not JSON: {}.", file_path(file_name), reason.what());
    }
  }
  /// A file's contents.
  [[nodiscard]] std::string text(std::string_view file_name) const {
    return detail::input_file(file_path(file_name)).whole_text();
  }

 private:
  explicit saved_checkpoint(std::filesystem::path folder);

  [[noreturn]] void reject(std::string_view name, std::string_view reason) const {
    throw_error(errc::bad_data, "\"{}\" is damaged: {}: {}. Give another checkpoint.",
                folder_.string(), name, reason);
  }

  [[nodiscard]] std::string file_path(std::string_view file_name) const {
    if (!contains(file_name)) {
      throw_error(errc::bad_data,
                  "the checkpoint \"{}\" has no {}: it was saved without that part.",
                  folder_.string(), file_name);
    }
    return (folder_ / file_name).string();
  }

  std::filesystem::path folder_;
  checkpoint_manifest manifest_;
};

inline saved_checkpoint saved_checkpoint::open(std::filesystem::path folder, checkpoint_check check,
                                               shard_place mine) {
  saved_checkpoint result(std::move(folder));
  const auto& files = result.manifest_.files;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool is_mine = i % mine.count == mine.index;
    const auto fault =
        detail::fault_of_file(result.folder_, files[i], is_mine ? check : checkpoint_check::sizes);
    if (fault) result.reject(files[i].name, *fault);
  }
  return result;
}

inline saved_checkpoint::saved_checkpoint(std::filesystem::path folder)
    : folder_(std::move(folder)) {
  const auto path = folder_ / detail::manifest_name;
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) {
    throw_error(errc::bad_data, "\"{}\" is not a whole checkpoint: it has no {}. Give another one.",
                folder_.string(), detail::manifest_name);
  }
  try {
    manifest_ = detail::parse_manifest(detail::input_file(path.string()).whole_text());
  } catch (const json::error& reason) {
    reject(detail::manifest_name, reason.what());
  }
}

}  // namespace parx
