// importance: how much each column does in a forest, by five measures of XGBoost's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

enum class importance_type {
  weight,      ///< how many splits are of the column
  gain,        ///< the mean gain of those
  cover,       ///< the mean sum of hessians that they split
  total_gain,  ///< the sum of the gains
  total_cover  ///< the sum of those hessians
};

/// A number a column, 0 for one that no split is of.
[[nodiscard]] inline std::vector<double> importances(const forest& model, importance_type type) {
  const auto columns = static_cast<std::size_t>(model.num_feature);
  std::vector<double> sums(columns, 0), splits(columns, 0);
  const bool of_gain = type == importance_type::gain || type == importance_type::total_gain;
  for (const tree& each : model.trees) {
    for (std::size_t node = 0; node < each.nodes(); ++node) {
      if (each.is_leaf(static_cast<std::int32_t>(node))) continue;
      const auto column = static_cast<std::size_t>(each.split_indices[node]);
      splits[column] += 1;
      sums[column] += static_cast<double>((of_gain ? each.loss_changes : each.sum_hessian)[node]);
    }
  }
  if (type == importance_type::weight) return splits;
  if (type == importance_type::gain || type == importance_type::cover) {
    for (std::size_t c = 0; c < columns; ++c) {
      if (splits[c] > 0) sums[c] /= splits[c];
    }
  }
  return sums;
}

}  // namespace parx::trees
