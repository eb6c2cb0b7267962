// split_at: the pieces of a text between separators.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Views of `text`, which must outlive them. A separator at the end begins no further piece; an
/// empty text has none.
[[nodiscard]] inline std::vector<std::string_view> split_at(std::string_view text,
                                                            char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const auto end = std::min(text.find(separator), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

}  // namespace parx::detail
