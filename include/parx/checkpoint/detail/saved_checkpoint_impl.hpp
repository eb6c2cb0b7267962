// Definitions of saved_checkpoint.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <parx/checkpoint/agreement.hpp>
#include <parx/checkpoint/detail/input_file.hpp>
#include <parx/checkpoint/saved_checkpoint.hpp>
#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>
#include <parx/core/xxh64.hpp>

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::optional<std::string> fault_of_file(const std::filesystem::path& folder,
                                                     const checkpoint_manifest::file& expected,
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

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE saved_checkpoint saved_checkpoint::open_together(process_group* group,
                                                             const std::filesystem::path& folder,
                                                             call_site site) {
  const shard_place mine = group == nullptr ? shard_place{} : place_in(*group);
  std::optional<saved_checkpoint> found;
  detail::agree(group, site, [&] { found = open(folder, checkpoint_check::contents, mine); });
  return std::move(*found);
}

PARX_INLINE bool saved_checkpoint::contains(std::string_view file_name) const noexcept {
  return std::any_of(manifest_.files.begin(), manifest_.files.end(),
                     [&](const auto& file) { return file.name == file_name; });
}

PARX_INLINE safetensors_file saved_checkpoint::tensors(std::string_view name) const {
  return safetensors_file(file_path(std::string(name) + ".safetensors"));
}

PARX_INLINE json::value saved_checkpoint::json(std::string_view name) const {
  const std::string file_name = std::string(name) + ".json";
  try {
    return json::parse(text(file_name));
  } catch (const json::error& reason) {
    throw_error(errc::bad_data, "\"{}\" is not JSON: {}.", file_path(file_name), reason.what());
  }
}

PARX_INLINE std::string saved_checkpoint::text(std::string_view file_name) const {
  return detail::input_file(file_path(file_name)).whole_text();
}

PARX_INLINE void saved_checkpoint::reject(std::string_view name, std::string_view reason) const {
  throw_error(errc::bad_data, "\"{}\" is damaged: {}: {}. Give another checkpoint.",
              folder_.string(), name, reason);
}

PARX_INLINE std::string saved_checkpoint::file_path(std::string_view file_name) const {
  if (!contains(file_name)) {
    throw_error(errc::bad_data, "the checkpoint \"{}\" has no {}: it was saved without that part.",
                folder_.string(), file_name);
  }
  return (folder_ / file_name).string();
}

PARX_INLINE saved_checkpoint saved_checkpoint::open(std::filesystem::path folder,
                                                    checkpoint_check check, shard_place mine) {
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

PARX_INLINE saved_checkpoint::saved_checkpoint(std::filesystem::path folder)
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
