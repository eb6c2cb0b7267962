// rank_list: numbers of ranks in the fewest words. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

/// "0-2,5" for {0, 1, 2, 5}; `ranks` must be in ascending order.
[[nodiscard]] inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += formatted("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += formatted("{}{}", last == i + 1 ? "," : "-", ranks[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace parx
