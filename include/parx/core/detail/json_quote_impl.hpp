// Definitions of json_quote.hpp.
#pragma once

#include <parx/core/formatted.hpp>
#include <parx/core/json_quote.hpp>

namespace parx::inline PARX_ABI::json {

PARX_INLINE std::string quote(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += formatted("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result += '"';
}

}  // namespace parx::json
