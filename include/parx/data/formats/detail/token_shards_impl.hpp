// Definitions of token_shards.hpp.
#pragma once

#include <array>
#include <bit>
#include <cerrno>
#include <fstream>
#include <utility>

#include <parx/core/error.hpp>
#include <parx/data/formats/token_shards.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE token_shards token_shards::open(const std::vector<std::string>& paths,
                                            shard_format layout) {
  static_assert(std::endian::native == std::endian::little);
  require(!paths.empty(), "token_shards: no files were given");
  token_shards result;
  for (const std::string& path : paths) result.add_file(path, layout);
  return result;
}

PARX_INLINE token_shards token_shards::from(std::vector<token_id> ids) {
  const auto kept = std::make_shared<const std::vector<token_id>>(std::move(ids));
  return from(*kept, kept);
}

PARX_INLINE token_shards token_shards::from(std::span<const token_id> ids,
                                            std::shared_ptr<const void> owner) {
  token_shards result;
  if (!ids.empty())
    result.shards_.push_back({{},
                              std::move(owner),
                              reinterpret_cast<const std::byte*>(ids.data()),
                              sizeof(token_id),
                              0,
                              ids.size()});
  return result;
}

PARX_INLINE void token_shards::write(const std::string& path, std::span<const token_id> ids) {
  token_id largest = 0;
  for (const token_id id : ids) {
    require(id >= 0, "token_shards: {} is not a token id", id);
    largest = std::max(largest, id);
  }
  require(ids.size() < (std::size_t{1} << 31U), "token_shards: {} tokens need more than one file",
          ids.size());
  const bool narrow = largest < 65536;
  std::array<std::int32_t, header_words> header{};
  header[0] = narrow ? magic_16 : magic_32;
  header[1] = narrow ? version_16 : version_32;
  header[2] = static_cast<std::int32_t>(ids.size());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(header.data()), sizeof(header));
  if (narrow) {
    const std::vector<std::uint16_t> words(ids.begin(), ids.end());
    out.write(reinterpret_cast<const char*>(words.data()),
              static_cast<std::streamsize>(2 * words.size()));
  } else {
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size_bytes()));
  }
  out.close();
  if (!out) throw_error(errc::io, "cannot write \"{}\": {}.", path, errno_text(errno));
}

PARX_INLINE void token_shards::add_file(const std::string& path, shard_format layout) {
  detail::mapped_file file(path);
  const auto bytes = file.bytes();
  std::size_t width = 2;
  std::size_t start = 0;
  std::size_t count = bytes.size() / 2;
  if (layout == shard_format::llm_c) {
    std::array<std::int32_t, 3> header{};
    start = header_words * 4;
    if (bytes.size() >= start) std::memcpy(header.data(), bytes.data(), sizeof(header));
    const bool narrow = header[0] == magic_16 && header[1] == version_16;
    if (!narrow && !(header[0] == magic_32 && header[1] == version_32))
      throw_error(errc::bad_data,
                  "\"{}\" begins with {} (version {}), not with {} or {}: it is not a token file "
                  "of llm.c. For nanoGPT's files, say shard_format::nanogpt.",
                  path, header[0], header[1], magic_16, magic_32);
    width = narrow ? 2 : 4;
    if (header[2] < 0 || static_cast<std::size_t>(header[2]) * width != bytes.size() - start)
      throw_error(errc::bad_data,
                  "\"{}\" says that it has {} tokens of {} bytes, but {} bytes follow the header. "
                  "Copy or make it again.",
                  path, header[2], width, bytes.size() - start);
    count = static_cast<std::size_t>(header[2]);
  } else if (bytes.size() % 2 != 0) {
    throw_error(errc::bad_data, "\"{}\" has {} bytes, not a whole number of uint16.", path,
                bytes.size());
  }
  const std::byte* const tokens = bytes.data() + (bytes.empty() ? 0 : start);
  const std::size_t first = size();
  if (count > 0) shards_.push_back({std::move(file), nullptr, tokens, width, first, count});
}

}  // namespace parx::data
