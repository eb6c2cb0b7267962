// json::quote: a text as a JSON string.
#pragma once

#include <string>
#include <string_view>

#include <fmt/format.h>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::json {

/// `text` in quotes.
[[nodiscard]] inline std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result += '"';
}

}  // namespace parx::json
