// joined_text: numbers or strings joined to one string, "2, 3, 5". fmt::join would compile some 300
// functions, its formatters of numbers, in every program.
#pragma once

#include <iterator>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// `all` is a range of integers or strings. Only begin() and end() are used, because the size() of
/// a tensor shape is not the number of its extents.
template <typename Range>
[[nodiscard]] std::string joined_text(const Range& all, std::string_view between = ", ") {
  std::string text;
  for (auto each = std::begin(all); each != std::end(all); ++each) {
    if (each != std::begin(all)) text += between;
    if constexpr (requires { std::to_string(*each); }) text += std::to_string(*each);
    else text += *each;
  }
  return text;
}

}  // namespace parx
