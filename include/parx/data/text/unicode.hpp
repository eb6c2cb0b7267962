// Characters: decoding and encoding UTF-8, the kinds of characters, and their lower-case form
// without accents.
//
// The tables (text/detail/unicode_tables.hpp, which is generated) have the Unicode versions that
// Hugging Face's tokenizers has, so that the same characters are punctuation there and here; a
// look-up is a binary search, except for ASCII. Pure. Sources: unicode.org/reports/tr15 (NFD),
// Unicode 14.0 section 3.12 (Hangul).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <parx/core/utf8.hpp>
#include <parx/data/text/detail/unicode_tables.hpp>

namespace parx::inline PARX_ABI::data {

/// U+FFFD, which replaces bytes that are not a character.
inline constexpr std::uint32_t replacement_character = 0xFFFD;

/// A code point, and how many bytes it takes.
using decoded_character = parx::detail::utf8_character;

/// The character that `text` begins with; `text` is not empty.
[[nodiscard]] inline decoded_character decode_character(std::string_view text) noexcept {
  return parx::detail::front_character(text);
}

/// Appends a character to `text` as UTF-8.
inline void append_character(std::string& text, std::uint32_t code) {
  parx::detail::append_utf8(text, code);
}

/// How many characters `text` has; an ill-formed piece of UTF-8 counts as one.
[[nodiscard]] inline std::size_t count_characters(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += decode_character(text.substr(at)).bytes) ++count;
  return count;
}

/// The position of the first byte of `text` that is not UTF-8; npos if there is none.
[[nodiscard]] inline std::size_t find_invalid_utf8(std::string_view text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const decoded_character next = decode_character(text.substr(at));
    if (!next.valid) return at;
    at += next.bytes;
  }
  return std::string_view::npos;
}

namespace detail {

template <typename Bounds>
[[nodiscard]] bool in_ranges(const Bounds& bounds, std::uint32_t code) noexcept {
  return (std::upper_bound(bounds.begin(), bounds.end(), code) - bounds.begin()) % 2 == 1;
}

[[nodiscard]] constexpr bool is_ascii_letter(std::uint32_t code) noexcept {
  return (code | 0x20U) - 'a' < 26;
}

}  // namespace detail

/// White_Space.
[[nodiscard]] inline bool is_space(std::uint32_t code) noexcept {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return detail::in_ranges(detail::space_bounds, code);
}
/// Control (Cc), format (Cf) and private-use (Co) characters that are not white space.
[[nodiscard]] inline bool is_control(std::uint32_t code) noexcept {
  if (code < 0x80) return code == 0x7F || (code < ' ' && !is_space(code));
  return detail::in_ranges(detail::control_bounds, code);
}
/// Punctuation (P*), and all of ASCII's that is neither letter nor digit, as BERT has it.
[[nodiscard]] inline bool is_punctuation(std::uint32_t code) noexcept {
  if (code < 0x80)
    return code > ' ' && code < 0x7F && !detail::is_ascii_letter(code) && code - '0' >= 10;
  return detail::in_ranges(detail::punctuation_bounds, code);
}
/// Letters (L*).
[[nodiscard]] inline bool is_letter(std::uint32_t code) noexcept {
  return code < 0x80 ? detail::is_ascii_letter(code)
                     : detail::in_ranges(detail::letter_bounds, code);
}
/// Numbers (N*).
[[nodiscard]] inline bool is_number(std::uint32_t code) noexcept {
  return code < 0x80 ? code - '0' < 10 : detail::in_ranges(detail::number_bounds, code);
}

/// The ideographs that BERT treats as words of one character (multilingual.md of its repository),
/// without the 256 from U+2B820 on, which Hugging Face's tokenizers leave out.
[[nodiscard]] constexpr bool is_ideograph(std::uint32_t code) noexcept {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x20000 && code <= 0x2A6DF) ||
         (code >= 0x2A700 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0x2F800 && code <= 0x2FA1F);
}

/// The lower case of a character where it is one character; its own code otherwise.
[[nodiscard]] inline std::uint32_t to_lower(std::uint32_t code) noexcept {
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

/// Calls use(code) for each character of the canonical decomposition (NFD) of `code` that is not a
/// non-spacing mark: "e" for "é", none for an accent alone, the Jamo of a Hangul syllable.
template <typename Use>
void strip_accents(std::uint32_t code, Use&& use) {
  if (code < 0x80) return use(code);
  if (code - 0xAC00 < 11172) {
    const std::uint32_t index = code - 0xAC00;
    use(0x1100 + index / 588);
    use(0x1161 + index % 588 / 28);
    if (index % 28 != 0) use(0x11A7 + index % 28);
    return;
  }
  if (code - 0xF900 < 474) return use(detail::compatibility_ideographs[code - 0xF900]);
  if (code - 0x2F800 < 542) return use(detail::compatibility_ideographs[474 + code - 0x2F800]);
  const auto find = [code](const auto& table) {
    const auto found =
        std::lower_bound(table.begin(), table.end(), code,
                         [](const auto& row, std::uint32_t c) { return row.code < c; });
    return found != table.end() && found->code == code ? &*found : nullptr;
  };
  if (const auto* one = find(detail::base_characters)) return use(one->base);
  if (detail::in_ranges(detail::mark_bounds, code)) return;
  if (const auto* more = find(detail::long_decompositions)) {
    use(more->first);
    use(more->second);
    if (more->third != 0) use(more->third);
    return;
  }
  use(code);
}

}  // namespace parx::data
