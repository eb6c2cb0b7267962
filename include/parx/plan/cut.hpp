// cut: which blocks of a model form which stage. Pure.
//
// A cut is the first block of each stage, ascending, from 0.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/joined_text.hpp>

namespace parx::inline PARX_ABI {

/// The cut that minimizes the weight of the heaviest stage. Each stage has at least one block. A
/// weight is anything that adds up: parameters, or measured seconds. Throws usage_error for more
/// stages than blocks.
[[nodiscard]] inline std::vector<std::size_t> cut_by_weight(std::span<const double> weights,
                                                            std::size_t stages) {
  const std::size_t blocks = weights.size();
  require(stages > 0 && stages <= blocks, "{} stages of {} blocks: give each stage at least one",
          stages, blocks);
  // For the best cut of the first n blocks into s + 1 stages: heaviest[s][n] is the weight of its
  // heaviest stage, begin[s][n] the first block of its last stage.
  std::vector<std::vector<double>> heaviest(stages, std::vector<double>(blocks + 1));
  std::vector<std::vector<std::size_t>> begin(stages, std::vector<std::size_t>(blocks + 1));
  for (std::size_t s = 0; s < stages; ++s) {
    for (std::size_t n = s + 1; n <= blocks; ++n) {
      heaviest[s][n] = std::numeric_limits<double>::infinity();
      double last = 0;
      for (std::size_t from = n; from-- > s;) {
        last += weights[from];
        if (s == 0 && from > 0) continue;
        const double here = s == 0 ? last : std::max(last, heaviest[s - 1][from]);
        if (here >= heaviest[s][n]) continue;
        heaviest[s][n] = here;
        begin[s][n] = from;
      }
    }
  }
  std::vector<std::size_t> cut(stages);
  for (std::size_t s = stages, n = blocks; s-- > 0; n = cut[s]) cut[s] = begin[s][n];
  return cut;
}

/// Throws usage_error for an invalid cut.
inline void check_cut(std::span<const std::size_t> cut, std::size_t stages, std::size_t blocks) {
  require(cut.size() == stages && !cut.empty() && cut.front() == 0 && cut.back() < blocks &&
              std::adjacent_find(cut.begin(), cut.end(), std::greater_equal<>()) == cut.end(),
          "the cut {{{}}} is not that of {} stages over {} blocks: name the first block of each "
          "stage, from 0, ascending",
          joined_text(cut), stages, blocks);
}

}  // namespace parx
