// printable: text from another process, made fit for a terminal and a log.
//
// UTF-8 passes. What acts on a terminal or breaks a line becomes \xNN for each of its bytes:
// control characters of both sets, line and paragraph separators, changes of the writing direction,
// bytes that are no UTF-8. So nobody can colour, overwrite or forge the lines of others.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/utf8.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

[[nodiscard]] constexpr bool is_harmless(char32_t code) noexcept {
  const auto within = [code](char32_t first, char32_t last) {
    return code >= first && code <= last;
  };
  return !within(0, 0x1f) && !within(0x7f, 0x9f) && !within(0x200e, 0x200f) &&
         !within(0x2028, 0x202e) && !within(0x2066, 0x2069);
}

}  // namespace detail

enum class line_breaks {
  escape,  ///< the text is part of a line
  indent   ///< it may have several, of which none but the first begins where lines begin
};

[[nodiscard]] std::string printable(std::string_view text,
                                    line_breaks breaks = line_breaks::escape);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/printable_impl.hpp>
#endif
