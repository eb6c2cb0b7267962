// Definitions of unicode.hpp.
#pragma once

#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE std::size_t count_characters(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_character(text.substr(at)).bytes)
    ++count;
  return count;
}

PARX_INLINE std::size_t find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const decoded_character next = decode_character(text.substr(at));
    if (!next.valid) return at;
    at += next.bytes;
  }
  return std::string_view::npos;
}

PARX_INLINE bool is_punctuation(std::uint32_t code) noexcept {
  if (code < 0x80)
    return code > ' ' && code < 0x7F && !detail::is_ascii_letter(code) && code - '0' >= 10;
  return detail::in_ranges(detail::punctuation_bounds, code);
}

PARX_INLINE std::uint32_t to_lower(std::uint32_t code) noexcept {
  if (code < 0x80) return code - 'A' < 26 ? code + 32 : code;
  const auto& runs = detail::lowercase_runs;
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), code,
                       [](std::uint32_t c, const auto& run) { return c < run.first; });
  if (after == runs.begin()) return code;
  const auto& run = *std::prev(after);
  if (code > run.last || (code - run.first) % run.step != 0) return code;
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(code) + run.difference);
}

}  // namespace parx::data
