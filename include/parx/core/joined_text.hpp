// joined_text: numbers or texts as one text, "2, 3, 5". Not by fmt::join, whose formatters of
// numbers are compiled anew in every program: 300 functions.
#pragma once

#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {
namespace detail {

[[nodiscard]] std::string join(const int* begin, const int* end, std::string_view between);
[[nodiscard]] std::string join(const std::size_t* begin, const std::size_t* end,
                               std::string_view between);
[[nodiscard]] std::string join(const std::string* begin, const std::string* end,
                               std::string_view between);

}  // namespace detail

/// Of what lies in one piece between begin() and end(): a tensor shape's extents, too, although its
/// size() is another number.
template <typename Range>
[[nodiscard]] std::string joined_text(const Range& all, std::string_view between = ", ") {
  return detail::join(std::to_address(std::begin(all)), std::to_address(std::end(all)), between);
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/joined_text_impl.hpp>
#endif
