// Text measured in terminal columns rather than bytes.
//
// UTF-8 in, columns out: combining marks take none, East Asian wide characters and emoji take two.
// A byte that is not UTF-8 counts as one column, so that no text can push a bar over the line's
// end. Pure functions. Source of the ranges: Unicode 15, EastAsianWidth.txt (W and F, whole
// blocks).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] constexpr std::size_t character_columns(char32_t code) noexcept {
  struct range {
    char32_t first, last;
  };
  constexpr range none[] = {
      {0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};
  constexpr range two[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                           {0xA960, 0xA97F},   {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},
                           {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},
                           {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                           {0x20000, 0x3FFFD}};
  for (const range& r : none) {
    if (code >= r.first && code <= r.last) return 0;
  }
  for (const range& r : two) {
    if (code >= r.first && code <= r.last) return 2;
  }
  return 1;
}

[[nodiscard]] constexpr std::size_t columns(std::string_view text) noexcept {
  std::size_t total = 0;
  while (!text.empty()) {
    const auto next = front_character(text);
    total += character_columns(next.code);
    text.remove_prefix(next.bytes);
  }
  return total;
}

/// The longest prefix of `text` that fits into `limit` columns; no character is cut in two.
[[nodiscard]] constexpr std::string_view cut_to_columns(std::string_view text,
                                                        std::size_t limit) noexcept {
  std::size_t used = 0;
  std::size_t end = 0;
  while (end < text.size()) {
    const auto next = front_character(text.substr(end));
    used += character_columns(next.code);
    if (used > limit) break;
    end += next.bytes;
  }
  return text.substr(0, end);
}

/// line = text, with each control character (newline, tab, escape), which would break a bar,
/// replaced by a space.
inline void assign_one_line(std::string& line, std::string_view text) {
  line.assign(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
}

}  // namespace parx::detail
