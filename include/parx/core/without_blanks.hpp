// without_blanks: a text without the blanks around it.
#pragma once

#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// A view of `text`, which must outlive it. `blanks` are the characters to leave out.
[[nodiscard]] constexpr std::string_view without_blanks(std::string_view text,
                                                        std::string_view blanks = " \t") noexcept {
  const auto first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

}  // namespace parx::detail
