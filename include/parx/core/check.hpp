// require: the precondition check of public functions.
#pragma once

#include <parx/core/error.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error with the formatted text unless `condition` holds.
template <typename... Args>
constexpr void require(bool condition, counted_text<sizeof...(Args)> text, const Args&... args) {
  if (!condition) [[unlikely]] throw_usage(text, args...);
}

}  // namespace parx
