// UTF-8 (RFC 3629), one character at a time. Decoding accepts any bytes. Pure. Source for what is
// ill-formed: Unicode 14.0, section 3.9.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// A character and the bytes that it took. `valid` is false where the bytes are ill-formed UTF-8:
/// the code is then U+FFFD, for the longest part that could have begun a character, as in Rust's
/// and Python's decoders.
struct utf8_character {
  char32_t code = 0;
  std::size_t bytes = 1;
  bool valid = true;
};

/// The character at the front of `text`, which is not empty.
[[nodiscard]] constexpr utf8_character front_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {.code = first};
  if (first < 0xC2 || first > 0xF4) return {.code = 0xFFFD, .valid = false};
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  char32_t code = first & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    // The second byte is narrower after E0 and F0 (overlong), ED (surrogates) and F4 (> U+10FFFF).
    const unsigned low = i > 1 ? 0x80 : first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    const unsigned high = i > 1 ? 0xBF : first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    if (byte(i) < low || byte(i) > high) return {.code = 0xFFFD, .bytes = i, .valid = false};
    code = code << 6 | (byte(i) & 0x3F);
  }
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
