// Definitions of core/joined_text.hpp.
#pragma once

#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename T>
[[nodiscard]] std::string join_all(const T* begin, const T* end, std::string_view between) {
  std::string text;
  for (const T* each = begin; each != end; ++each) {
    if (each != begin) text += between;
    if constexpr (requires { std::to_string(*each); }) text += std::to_string(*each);
    else text += *each;
  }
  return text;
}

PARX_INLINE std::string join(const int* begin, const int* end, std::string_view between) {
  return join_all(begin, end, between);
}
PARX_INLINE std::string join(const std::size_t* begin, const std::size_t* end,
                             std::string_view between) {
  return join_all(begin, end, between);
}
PARX_INLINE std::string join(const std::string* begin, const std::string* end,
                             std::string_view between) {
  return join_all(begin, end, between);
}

}  // namespace detail

}  // namespace parx
