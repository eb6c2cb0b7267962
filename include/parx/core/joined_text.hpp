// joined_text: numbers or strings joined to one string, "2, 3, 5". fmt::join would compile some 300
// functions, its formatters of numbers, in every program.
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

/// `all` is a contiguous range of int, std::size_t or std::string. Only begin() and end() are used,
/// because the size() of a tensor shape is not the number of its extents.
template <typename Range>
[[nodiscard]] std::string joined_text(const Range& all, std::string_view between = ", ") {
  return detail::join(std::to_address(std::begin(all)), std::to_address(std::end(all)), between);
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/core/detail/joined_text_impl.hpp>
#endif
