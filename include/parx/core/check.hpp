// require: the precondition check of public functions.
#pragma once

#include <parx/core/error.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error with the formatted text unless `condition` holds.
template <typename... Args>
constexpr void require(bool condition, fmt::format_string<Args...> text, const Args&... args) {
  if (!condition) [[unlikely]] throw_usage(text, args...);
}

}  // namespace parx
