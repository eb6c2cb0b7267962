// json::quote: a text as a JSON string.
#pragma once

#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::json {

/// `text` in quotes.
[[nodiscard]] std::string quote(std::string_view text);

}  // namespace parx::json

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/json_quote_impl.hpp>
#endif
