// token_rows: tokenised texts, one row of ids each, with a label each where there are labels; in
// memory, or mapped from a cache file that all ranks of a host share.
//
// The file: header (magic "parxrow1", key, sizes, counts, checksum), ids as int32, padding to 8
// bytes, offsets as uint64 (rows + 1), labels as int64. Everything it says is checked when it is
// opened. Immutable; copies share the memory; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/log.hpp>
#include <parx/data/detail/mapped_file.hpp>
#include <parx/data/text/vocabulary.hpp>

namespace parx::inline PARX_ABI::data {

/// What was found while texts were tokenised.
struct text_counts {
  std::uint64_t tokens = 0;            ///< that were kept, special ones included
  std::uint64_t truncated_rows = 0;    ///< texts that were too long
  std::uint64_t truncated_tokens = 0;  ///< tokens that were cut off them
  std::uint64_t invalid = 0;           ///< ill-formed pieces of UTF-8
  friend bool operator==(const text_counts&, const text_counts&) = default;
};

/// Rows while they are being made.
struct token_rows_data {
  std::vector<token_id> ids;
  std::vector<std::uint64_t> offsets = {0};  ///< row i is ids[offsets[i]] to ids[offsets[i + 1]]
  std::vector<std::int64_t> labels;
  text_counts counts;
  bool made_alone = false;  ///< under a cache's lock: no other rank of the host makes them too

  /// Whether it falls to this rank to say what is wrong with them.
  [[nodiscard]] bool tells() const noexcept {
    return made_alone || logger::instance().rank() <= 0;
  }
  void end_row() { offsets.push_back(ids.size()); }
};

class token_rows {
 public:
  token_rows() : token_rows(token_rows_data{}) {}

  explicit token_rows(token_rows_data data) {
    const auto kept = std::make_shared<const token_rows_data>(std::move(data));
    ids_ = kept->ids;
    offsets_ = kept->offsets;
    labels_ = kept->labels;
    counts_ = kept->counts;
    owner_ = kept;
  }

  /// The rows in a file that encode() made for this key; nullopt where the bytes are anything else.
  [[nodiscard]] static std::optional<token_rows> decode(const detail::mapped_file& file,
                                                        std::uint64_t key) {
    const auto bytes = file.bytes();
    file_header header;
    if (bytes.size() < sizeof(header)) return std::nullopt;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const std::uint64_t limit = bytes.size() / 4;
    if (header.magic != magic || header.key != key || header.ids > limit ||
        header.offsets > limit || header.labels > limit || header.offsets == 0)
      return std::nullopt;
    const std::uint64_t id_bytes = (4 * header.ids + 7) / 8 * 8;
    if (sizeof(header) + id_bytes + 8 * (header.offsets + header.labels) != bytes.size() ||
        header.checksum != checksum(header, bytes.subspan(sizeof(header))))
      return std::nullopt;
    token_rows result;
    const std::byte* at = bytes.data() + sizeof(header);
    result.ids_ = {reinterpret_cast<const token_id*>(at), header.ids};
    at += id_bytes;
    result.offsets_ = {reinterpret_cast<const std::uint64_t*>(at), header.offsets};
    at += 8 * header.offsets;
    result.labels_ = {reinterpret_cast<const std::int64_t*>(at), header.labels};
    if (result.offsets_.front() != 0 || result.offsets_.back() != header.ids ||
        !std::is_sorted(result.offsets_.begin(), result.offsets_.end()))
      return std::nullopt;
    result.counts_ = header.counts;
    result.owner_ = std::make_shared<detail::mapped_file>(file);
    return result;
  }

  /// The bytes of a cache file.
  [[nodiscard]] std::vector<std::byte> encode(std::uint64_t key) const {
    file_header header{.magic = magic,
                       .key = key,
                       .ids = ids_.size(),
                       .offsets = offsets_.size(),
                       .labels = labels_.size(),
                       .counts = counts_};
    const std::size_t id_bytes = (ids_.size_bytes() + 7) / 8 * 8;
    std::vector<std::byte> bytes(sizeof(header) + id_bytes + offsets_.size_bytes() +
                                 labels_.size_bytes());
    std::byte* at = bytes.data() + sizeof(header);
    const auto put = [&at](const auto& span, std::size_t size) {
      if (!span.empty()) std::memcpy(at, span.data(), span.size_bytes());
      at += size;
    };
    put(ids_, id_bytes);
    put(offsets_, offsets_.size_bytes());
    put(labels_, labels_.size_bytes());
    header.checksum = checksum(header, std::span(bytes).subspan(sizeof(header)));
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  }

  [[nodiscard]] std::size_t size() const noexcept { return offsets_.size() - 1; }
  [[nodiscard]] std::span<const token_id> operator[](std::size_t row) const {
    require(row < size(), "sample {} does not exist in a data set of {}", row, size());
    return ids_.subspan(offsets_[row], offsets_[row + 1] - offsets_[row]);
  }
  [[nodiscard]] std::size_t length(std::size_t row) const { return (*this)[row].size(); }
  /// All rows, one behind the other.
  [[nodiscard]] std::span<const token_id> ids() const noexcept { return ids_; }
  [[nodiscard]] std::span<const std::int64_t> labels() const noexcept { return labels_; }
  [[nodiscard]] const text_counts& counts() const noexcept { return counts_; }
  /// What keeps ids() and labels() alive.
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }

 private:
  static constexpr std::array<char, 8> magic{'p', 'a', 'r', 'x', 'r', 'o', 'w', '1'};

  struct file_header {
    std::array<char, 8> magic;
    std::uint64_t key = 0, ids = 0, offsets = 0, labels = 0;
    text_counts counts;
    std::uint64_t checksum = 0;
  };

  static std::uint64_t checksum(file_header header, std::span<const std::byte> payload) {
    header.checksum = 0;
    std::uint64_t sum = 0x9E3779B97F4A7C15;
    const auto mix = [&sum](const std::byte* from, std::size_t bytes) {
      for (std::size_t i = 0; i + 8 <= bytes; i += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, from + i, 8);
        sum = (sum ^ word) * 0xFF51AFD7ED558CCD;
        sum ^= sum >> 32U;
      }
    };
    mix(reinterpret_cast<const std::byte*>(&header), sizeof(header));
    mix(payload.data(), payload.size());
    return sum;
  }

  std::span<const token_id> ids_;
  std::span<const std::uint64_t> offsets_;
  std::span<const std::int64_t> labels_;
  text_counts counts_;
  std::shared_ptr<const void> owner_;
};

}  // namespace parx::data
