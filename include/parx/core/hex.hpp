// Bytes as hexadecimal digits, two lower-case ones for each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

[[nodiscard]] inline std::string to_hex(std::string_view bytes) {
  static constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char each : bytes) {
    const auto byte = static_cast<unsigned char>(each);
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

/// Of to_hex()'s text.
[[nodiscard]] inline std::string from_hex(std::string_view text) {
  const auto digit = [](char each) { return each <= '9' ? each - '0' : each - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  return bytes;
}

}  // namespace parx::detail
