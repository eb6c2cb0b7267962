// Definitions of token_rows.hpp.
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/data/text/token_rows.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE void token_rows_data::end_row() { offsets.push_back(ids.size()); }

PARX_INLINE token_rows::token_rows(token_rows_data data) {
  const auto kept = std::make_shared<const token_rows_data>(std::move(data));
  ids_ = kept->ids;
  offsets_ = kept->offsets;
  labels_ = kept->labels;
  counts_ = kept->counts;
  owner_ = kept;
}

PARX_INLINE std::optional<token_rows> token_rows::decode(const detail::mapped_file& file,
                                                         std::uint64_t key) {
  const auto bytes = file.bytes();
  file_header header;
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::uint64_t limit = bytes.size() / 4;
  if (header.magic != magic || header.key != key || header.ids > limit || header.offsets > limit ||
      header.labels > limit || header.offsets == 0)
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

PARX_INLINE std::vector<std::byte> token_rows::encode(std::uint64_t key) const {
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

PARX_INLINE std::span<const token_id> token_rows::operator[](std::size_t row) const {
  require(row < size(), "sample {} does not exist in a data set of {}", row, size());
  return ids_.subspan(offsets_[row], offsets_[row + 1] - offsets_[row]);
}

PARX_INLINE std::uint64_t token_rows::checksum(file_header header,
                                               std::span<const std::byte> payload) {
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

}  // namespace parx::data
