// json::quote: a text as a JSON string, escaped.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI::json {

/// `text` in double quotes; quotes, backslashes and control characters in it are escaped. Bytes
/// that are not UTF-8 become U+FFFD, since a reader refuses a file that has them.
[[nodiscard]] inline std::string quote(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const auto next = parx::detail::front_character(text);
    if (!next.valid) {
      result += "\\ufffd";
    } else if (next.code == '"' || next.code == '\\') {
      result += '\\';
      result += text.front();
    } else if (next.code == '\n') {
      result += "\\n";
    } else if (next.code < 0x20) {
      result += formatted("\\u{:04x}", static_cast<unsigned>(next.code));
    } else {
      result += text.substr(0, next.bytes);
    }
    text.remove_prefix(next.bytes);
  }
  return result += '"';
}

}  // namespace parx::json
