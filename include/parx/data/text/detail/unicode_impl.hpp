// Definitions of unicode.hpp.
#pragma once

#include <parx/core/utf8.hpp>
#include <parx/data/text/unicode.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE decoded_character decode_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const std::uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const unsigned length = first < 0xC2 || first > 0xF4 ? 1
                          : first < 0xE0               ? 2
                          : first < 0xF0               ? 3
                                                       : 4;
  std::uint32_t code = first & (0xFFU >> (length + 1));
  for (unsigned i = 1; i < length; ++i) {
    // The second byte is narrower after E0 and F0 (overlong), ED (surrogates) and F4 (> U+10FFFF).
    const std::uint32_t low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const std::uint32_t high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {replacement_character, i, false};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  if (length == 1) return {replacement_character, 1, false};
  return {code, length};
}

PARX_INLINE void append_character(std::string& text, std::uint32_t code) {
  parx::detail::append_utf8(text, code);
}

PARX_INLINE std::size_t count_characters(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_character(text.substr(at)).length)
    ++count;
  return count;
}

PARX_INLINE std::size_t find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const decoded_character next = decode_character(text.substr(at));
    if (!next.valid) return at;
    at += next.length;
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
