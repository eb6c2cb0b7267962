// printable: text from another process, made safe for a terminal and a log.
//
// UTF-8 passes. Characters that act on a terminal or break a line become \xNN for each byte: C0 and
// C1 control characters, line and paragraph separators, bidirectional controls, malformed UTF-8. So
// no text can colour, overwrite or forge other lines.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class line_breaks {
  escape,  ///< as \x0a: the text is part of a line
  indent   ///< kept, as are tabs; later lines are indented, so that they look like no log line
};

[[nodiscard]] std::string printable(std::string_view text,
                                    line_breaks breaks = line_breaks::escape);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/printable_impl.hpp>
#endif
