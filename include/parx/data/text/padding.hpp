// pad_rows: rows of ids as one [batch, length] tensor, padded to the longest row. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <parx/core/check.hpp>
#include <parx/data/text/vocabulary.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::data {

struct padding_options {
  std::size_t multiple_of = 1;  ///< lengths are rounded up to a multiple of this
  std::size_t to_length = 0;    ///< at least this long; give max_length for batches of one shape
};

/// The ids and their attention mask (1 for tokens, 0 for padding), both [rows, length].
struct padded_rows {
  tensor<token_id> ids;
  tensor<std::uint8_t> mask;
};

[[nodiscard]] inline padded_rows pad_rows(std::span<const std::span<const token_id>> rows,
                                          token_id pad, const padding_options& options = {}) {
  require(options.multiple_of > 0, "padding: lengths cannot be a multiple of 0");
  std::size_t length = std::max<std::size_t>(options.to_length, 1);
  for (const auto row : rows) length = std::max(length, row.size());
  length = (length + options.multiple_of - 1) / options.multiple_of * options.multiple_of;
  padded_rows result{tensor<token_id>::empty({rows.size(), length}),
                     tensor<std::uint8_t>::empty({rows.size(), length})};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    token_id* const ids = result.ids.data() + i * length;
    std::uint8_t* const mask = result.mask.data() + i * length;
    std::fill(std::copy(rows[i].begin(), rows[i].end(), ids), ids + length, pad);
    std::fill_n(mask, rows[i].size(), std::uint8_t{1});
    std::fill(mask + rows[i].size(), mask + length, std::uint8_t{0});
  }
  return result;
}

/// The positions up to the last one at which a row has a token; at least one. `mask` is that of
/// padded_rows.
[[nodiscard]] inline std::size_t longest_row(const tensor<std::uint8_t>& mask) {
  std::size_t length = 1;
  for (std::size_t row = 0; row < mask.extent(0); ++row) {
    const auto ones = mask.select(0, row).contiguous();
    length = std::max(length, static_cast<std::size_t>(std::count(ones.begin(), ones.end(), 1)));
  }
  return length;
}
/// Cuts rows [n, positions] after the first `length` positions.
template <typename T>
void cut_rows_to(tensor<T>& rows, std::size_t length) {
  if (rows.extent(1) != length) rows = rows.slice(1, 0, length).contiguous();
}

}  // namespace parx::data
