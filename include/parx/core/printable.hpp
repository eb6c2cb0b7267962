// printable: text from another process, made safe for a terminal and a log.
//
// UTF-8 passes. Characters that act on a terminal or break a line become \xNN for each byte: C0 and
// C1 control characters, line and paragraph separators, bidirectional controls, malformed UTF-8. So
// no text can colour, overwrite or forge other lines.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/formatted.hpp>
#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI {

enum class line_breaks {
  escape,  ///< as \x0a: the text is part of a line
  indent   ///< kept, as are tabs; later lines are indented, so that they look like no log line
};

namespace detail {

[[nodiscard]] constexpr bool is_harmless(char32_t code) noexcept {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  return !within(0, 0x1f) && !within(0x7f, 0x9f) && !within(0x200e, 0x200f) &&
         !within(0x2028, 0x202e) && !within(0x2066, 0x2069);
}

}  // namespace detail

[[nodiscard]] inline std::string printable(std::string_view text,
                                           line_breaks breaks = line_breaks::escape) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto next = detail::front_character(text);
    const std::string_view bytes = text.substr(0, next.bytes);
    if (breaks == line_breaks::indent && (next.code == '\n' || next.code == '\t')) {
      result += next.code == '\n' ? "\n    " : "\t";
    } else if (next.valid && detail::is_harmless(next.code)) {
      result.append(bytes);
    } else {
      for (const char byte : bytes) {
        result += formatted("\\x{:02x}", static_cast<unsigned char>(byte));
      }
    }
    text.remove_prefix(next.bytes);
  }
  return result;
}

}  // namespace parx
