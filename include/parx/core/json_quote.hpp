// json::quote: a text as a JSON string, escaped.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::json {

/// `text` in double quotes; quotes, backslashes and control characters in it are escaped. Bytes
/// that are not UTF-8 become U+FFFD, since a reader refuses a file that has them.
[[nodiscard]] std::string quote(std::string_view text);

}  // namespace parx::json

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/json_quote_impl.hpp>
#endif
