// token_rows: tokenised texts, one row of ids for each, and optionally a label for each; in memory,
// or mapped from a cache file that all ranks of a host share.
//
// The file: header (magic "parxrow1", key, sizes, counts, checksum), ids as int32, padding to 8
// bytes, offsets as uint64 (rows + 1), labels as int64. All of it is checked when it is opened.
// Immutable; copies share the memory; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <parx/core/log.hpp>
#include <parx/data/detail/mapped_file.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

/// Counts from the tokenisation of texts.
struct text_counts {
  std::uint64_t tokens = 0;            ///< that were kept, special ones included
  std::uint64_t truncated_rows = 0;    ///< texts that were too long
  std::uint64_t truncated_tokens = 0;  ///< tokens that were cut off
  std::uint64_t invalid = 0;           ///< ill-formed pieces of UTF-8
  friend bool operator==(const text_counts&, const text_counts&) = default;
};

/// Where rows came from.
enum class cache_use {
  none,      ///< there is no cache, or it cannot be written: they are in this process alone
  found,     ///< the cache had them, whole
  made,      ///< they were made, and are in the cache now
  repaired,  ///< the same, because what was there was damaged
};

/// Rows while they are being made.
struct token_rows_data {
  std::vector<token_id> ids;
  std::vector<std::uint64_t> offsets = {0};  ///< row i is ids[offsets[i]] to ids[offsets[i + 1]]
  std::vector<std::int64_t> labels;
  text_counts counts;
  bool made_alone = false;  ///< under a cache's lock: no other rank of the host makes them too

  /// Whether this rank logs warnings about them.
  [[nodiscard]] bool logs_warnings() const noexcept {
    return made_alone || logger::instance().rank() <= 0;
  }
  void end_row();
};

class token_rows {
 public:
  token_rows() : token_rows(token_rows_data{}) {}

  explicit token_rows(token_rows_data data);

  /// The rows in a file that encode() made for this key; nullopt for any other bytes.
  [[nodiscard]] static std::optional<token_rows> decode(const detail::mapped_file& file,
                                                        std::uint64_t key);

  /// The bytes of a cache file.
  [[nodiscard]] std::vector<std::byte> encode(std::uint64_t key) const;

  [[nodiscard]] std::size_t size() const noexcept { return offsets_.size() - 1; }
  [[nodiscard]] std::span<const token_id> operator[](std::size_t row) const;
  [[nodiscard]] std::size_t length(std::size_t row) const { return (*this)[row].size(); }
  /// All rows, one after the other.
  [[nodiscard]] std::span<const token_id> ids() const noexcept { return ids_; }
  [[nodiscard]] std::span<const std::int64_t> labels() const noexcept { return labels_; }
  [[nodiscard]] const text_counts& counts() const noexcept { return counts_; }
  [[nodiscard]] cache_use cached() const noexcept { return cached_; }
  /// The same rows with another answer of cached().
  [[nodiscard]] token_rows with(cache_use cached) const {
    token_rows rows = *this;
    rows.cached_ = cached;
    return rows;
  }
  /// Keeps ids() and labels() alive.
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

 private:
  static constexpr std::array<char, 8> magic{'p', 'a', 'r', 'x', 'r', 'o', 'w', '1'};

  struct file_header {
    std::array<char, 8> magic;
    std::uint64_t key = 0, ids = 0, offsets = 0, labels = 0;
    text_counts counts;
    std::uint64_t checksum = 0;
  };

  static std::uint64_t checksum(file_header header, std::span<const std::byte> payload);

  std::span<const token_id> ids_;
  std::span<const std::uint64_t> offsets_;
  std::span<const std::int64_t> labels_;
  text_counts counts_;
  cache_use cached_ = cache_use::none;
  std::shared_ptr<const void> owner_;
};

}  // namespace parx::data

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/data/text/detail/token_rows_impl.hpp>
#endif
