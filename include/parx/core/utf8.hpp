// UTF-8 (RFC 3629), one character at a time. Decoding accepts any bytes. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

struct utf8_character {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = true;
};

/// The character at the front of `text`, which is not empty. A byte that starts no well-formed
/// sequence (overlong, surrogate, cut off) is one invalid character.
[[nodiscard]] constexpr utf8_character front_character(std::string_view text) noexcept {
  constexpr utf8_character invalid{.code = 0xFFFD, .bytes = 1, .valid = false};
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {.code = first};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes > text.size()) return invalid;
  char32_t code = first & (0xFFu >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return invalid;
    code = (code << 6) | (byte(i) & 0x3Fu);
  }
  const char32_t smallest = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < smallest || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return invalid;
  return {.code = code, .bytes = bytes};
}

/// Appends a character, which is at most U+10FFFF and no surrogate.
inline void append_utf8(std::string& text, char32_t code) {
  const unsigned rest = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned first_bits[] = {0, 0xC0, 0xE0, 0xF0};
  text += static_cast<char>(first_bits[rest] | code >> (6 * rest));
  for (unsigned i = rest; i-- > 0;) text += static_cast<char>(0x80 | (code >> (6 * i) & 0x3F));
}

}  // namespace parx::detail
