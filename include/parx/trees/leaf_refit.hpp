// leaf_refit: for objectives whose best leaf is a quantile (absolute error, pinball loss).
//
// Their hessians say nothing about how far a leaf should go, so the tree's shape comes from the
// gradients and each leaf's value from its rows' residuals: their exact weighted quantile over all
// ranks, by one selection for all leaves, times the learning rate. (XGBoost takes the mean of the
// ranks' quantiles instead, so its leaves depend on the ranks.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/growth.hpp>
#include <parx/trees/selection.hpp>
#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

/// The rank of the quantile `part` (0 ... 1) in numbers that weigh `total`: the smallest number
/// such that those up to it weigh part * total at least.
[[nodiscard]] inline std::int64_t quantile_rank(double part, std::int64_t total) {
  const double up_to = std::ceil(part * static_cast<double>(total));
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(up_to) - 1, 0, total - 1);
}

/// Collective. The quantile `part` of each of the columns, 0 for one without numbers; `add(c, put)`
/// calls put(row, value) for the numbers of column c on this rank. `weights` are
/// integer_weights().
template <typename Add>
[[nodiscard]] std::vector<float> quantiles(process_group& group, std::size_t columns, double part,
                                           std::span<const std::uint32_t> weights, const Add& add) {
  std::vector<sorted_column> sorted(columns, sorted_column(weights));
  parallel_for(columns, 1, [&](std::size_t first, std::size_t last) {
    for (std::size_t c = first; c < last; ++c) {
      add(c, [&](std::size_t row, float value) { sorted[c].add(row, value); });
      sorted[c].sort();
    }
  });
  std::vector<std::int64_t> ranks(columns);
  const auto found = select(group, sorted, [&](std::size_t c, std::int64_t total) {
    ranks[c] = quantile_rank(part, total);
    return wanted_keys{{ranks[c]}, 0};
  });
  std::vector<float> values(columns, 0);
  for (std::size_t c = 0; c < columns; ++c) {
    if (!found[c].empty()) values[c] = value_of(holder_of(found[c], ranks[c]).key);
  }
  return values;
}

/// Collective. Sets the values of the leaves. residual(row) is label less margin, on this rank.
template <typename Residual>
void refit_leaves(process_group& group, tree& grown, std::span<const grown_leaf> leaves,
                  double part, double learning_rate, std::span<const std::uint32_t> weights,
                  const Residual& residual) {
  const std::vector<float> values =
      quantiles(group, leaves.size(), part, weights, [&](std::size_t c, const auto& put) {
        for (const std::uint32_t row : leaves[c].rows) put(row, residual(row));
      });
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto node = static_cast<std::size_t>(leaves[i].node);
    grown.split_conditions[node] = values[i] * static_cast<float>(learning_rate);
    grown.base_weights[node] = grown.split_conditions[node];
  }
}

}  // namespace parx::trees
