// token_shards: the tokens of many files as one long array, mapped into memory.
//
//   auto tokens = parx::data::token_shards::open({"train_000.bin", "train_001.bin"});
//
// A file is llm.c's: 256 int32 of header (magic, version, number of tokens, zeros), then the tokens
// as uint16 (magic 20240520, version 1) or uint32 (magic 20240801, version 7), little-endian. Files
// of bare uint16, as nanoGPT writes them, are read when asked for. Immutable; copies share the
// mapping; any thread. Source: karpathy/llm.c dev/data/data_common.py, karpathy/nanoGPT train.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/data/detail/mapped_file.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

enum class shard_format {
  llm_c,   ///< with a header that says how many tokens of which size there are
  nanogpt  ///< uint16 from the first byte to the last
};

class token_shards {
 public:
  /// Throws errc::io, or errc::bad_data for a file that is not in the layout or was cut short.
  [[nodiscard]] static token_shards open(const std::vector<std::string>& paths,
                                         shard_format layout = shard_format::llm_c);

  /// Tokens in memory.
  [[nodiscard]] static token_shards from(std::vector<token_id> ids);
  /// Tokens in memory that `owner` keeps alive.
  [[nodiscard]] static token_shards from(std::span<const token_id> ids,
                                         std::shared_ptr<const void> owner);

  /// Writes one file in llm.c's layout, with 2 bytes a token where all ids are below 65536. Throws
  /// usage_error for a negative id, errc::io when the file cannot be written.
  static void write(const std::string& path, std::span<const token_id> ids);

  /// Tokens in all files together.
  [[nodiscard]] std::size_t size() const noexcept {
    return shards_.empty() ? 0 : shards_.back().first + shards_.back().count;
  }

  /// Copies the tokens [begin, begin + out.size()), which may lie in several files. Throws
  /// usage_error when they go beyond the end.
  template <typename Id>
  void copy(std::size_t begin, std::span<Id> out) const {
    require(begin <= size() && out.size() <= size() - begin, "token_shards: tokens {} to {} of {}",
            begin, begin + out.size(), size());
    auto at = std::upper_bound(shards_.begin(), shards_.end(), begin,
                               [](std::size_t b, const shard& each) { return b < each.first; });
    if (at != shards_.begin()) --at;
    for (std::size_t done = 0; done < out.size(); ++at) {
      const std::size_t offset = begin + done - at->first;
      const std::size_t part = std::min(out.size() - done, at->count - offset);
      const std::byte* from = at->tokens + offset * at->width;
      for (std::size_t i = 0; i < part; ++i, from += at->width) {
        std::uint32_t id = 0;
        std::memcpy(&id, from, at->width);
        out[done + i] = static_cast<Id>(id);
      }
      done += part;
    }
  }

 private:
  static constexpr std::size_t header_words = 256;
  static constexpr std::int32_t magic_16 = 20240520, version_16 = 1;
  static constexpr std::int32_t magic_32 = 20240801, version_32 = 7;

  struct shard {
    detail::mapped_file file;
    std::shared_ptr<const void> owner;
    const std::byte* tokens;
    std::size_t width;  ///< bytes of a token
    std::size_t first;  ///< its first token's number among all
    std::size_t count;
  };

  void add_file(const std::string& path, shard_format layout);

  std::vector<shard> shards_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/formats/detail/token_shards_impl.hpp>
#endif
