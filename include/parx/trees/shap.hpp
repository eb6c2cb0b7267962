// shap: how much each column moved a prediction (SHAP values), by TreeSHAP.
//
// The value of column j is its Shapley value in the game whose players are the columns and in which
// a set S earns the tree's expected value when only the columns of S are known: a split of a known
// column is followed, at one of an unknown column both children count by their share of the
// hessians. Values and the expected value of a row add up to its margin.
//
// Walking down, a path keeps for each number k of known columns among those met the weight of the
// subsets of that size, k! (n - k - 1)! / n! times the product of the shares; a column is added to
// it (extend) and, where it is met again or a leaf asks for its part, taken out of it (unwind).
// That takes leaves x depth^2 steps a row and tree.
// Source: Lundberg, Erion, Lee 2018, "Consistent individualized feature attribution for tree
// ensembles", algorithm 2.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <parx/trees/predict.hpp>
#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

namespace detail {

/// A column on the path. `zero`: the share of rows that come down where it is unknown; `one`: 1
/// where the row itself does, else 0.
struct path_column {
  std::int32_t column;
  double zero;
  double one;
  double weight;  ///< of the subsets with as many known columns as this one's position
};
using shap_path = std::vector<path_column>;

inline void extend(shap_path& path, std::int32_t column, double zero, double one) {
  const std::size_t depth = path.size();
  path.push_back({column, zero, one, depth == 0 ? 1.0 : 0.0});
  const auto length = static_cast<double>(depth + 1);
  for (std::size_t i = depth; i-- > 0;) {
    const double weight = path[i].weight;
    path[i + 1].weight += one * weight * static_cast<double>(i + 1) / length;
    path[i].weight = zero * weight * static_cast<double>(depth - i) / length;
  }
}

/// visit(i, weight) for the weights of the path without its column `taken`, from the last to the
/// first.
template <typename Visit>
void unwound(const shap_path& path, std::size_t taken, const Visit& visit) {
  const std::size_t depth = path.size() - 1;
  const double zero = path[taken].zero, one = path[taken].one;
  const auto length = static_cast<double>(depth + 1);
  double above = path[depth].weight;
  for (std::size_t i = depth; i-- > 0;) {
    if (one != 0) {
      const double weight = above * length / (static_cast<double>(i + 1) * one);
      above = path[i].weight - weight * zero * static_cast<double>(depth - i) / length;
      visit(i, weight);
    } else {
      visit(i, path[i].weight * length / (zero * static_cast<double>(depth - i)));
    }
  }
}
inline void unwind(shap_path& path, std::size_t taken) {
  std::vector<double> weights(path.size() - 1);
  unwound(path, taken, [&](std::size_t i, double weight) { weights[i] = weight; });
  path.erase(path.begin() + static_cast<std::ptrdiff_t>(taken));
  for (std::size_t i = 0; i < weights.size(); ++i) path[i].weight = weights[i];
}

/// Adds the values of one row and tree to `sums`, one a column.
struct tree_shap {
  const tree& of;
  std::span<const float> row;
  std::span<double> sums;

  void walk(std::int32_t node, shap_path path, double zero, double one, std::int32_t column) const {
    extend(path, column, zero, one);
    const auto at = static_cast<std::size_t>(node);
    if (of.is_leaf(node)) {
      const auto value = static_cast<double>(of.split_conditions[at]);
      for (std::size_t i = 1; i < path.size(); ++i) {
        double weights = 0;
        unwound(path, i, [&](std::size_t, double weight) { weights += weight; });
        sums[static_cast<std::size_t>(path[i].column)] +=
            weights * (path[i].one - path[i].zero) * value;
      }
      return;
    }
    const std::int32_t split = of.split_indices[at];
    double known_zero = 1, known_one = 1;
    for (std::size_t i = 1; i < path.size(); ++i) {
      if (path[i].column != split) continue;
      known_zero = path[i].zero, known_one = path[i].one;
      unwind(path, i);
      break;
    }
    const std::int32_t hot = of.next(node, row[static_cast<std::size_t>(split)]);
    for (std::int32_t child : {of.left_children[at], of.right_children[at]}) {
      const double share = static_cast<double>(of.sum_hessian[static_cast<std::size_t>(child)]) /
                           static_cast<double>(of.sum_hessian[at]);
      walk(child, path, known_zero * share, child == hot ? known_one : 0, split);
    }
  }
};

/// The mean of the leaves below a node, by hessian.
[[nodiscard]] inline double expected_value(const tree& of, std::int32_t node = 0) {
  const auto at = static_cast<std::size_t>(node);
  if (of.is_leaf(node)) return static_cast<double>(of.split_conditions[at]);
  double sum = 0;
  for (const std::int32_t child : {of.left_children[at], of.right_children[at]}) {
    sum += static_cast<double>(of.sum_hessian[static_cast<std::size_t>(child)]) *
           expected_value(of, child);
  }
  return sum / static_cast<double>(of.sum_hessian[at]);
}

}  // namespace detail

/// Rows x outputs x (columns + 1): the columns' values, then what is expected without them, base
/// score included; together they are the row's margin. In double within, by all threads.
[[nodiscard]] inline std::vector<float> shap_values(const forest& model, const table& rows) {
  const std::span<const tree> trees = used_trees(model);
  const std::size_t outputs = model.outputs();
  const auto width = static_cast<std::size_t>(model.num_feature) + 1;
  const objective loss = objective_of(model);
  std::vector<double> expected(outputs, loss.to_margin(model.base_score));
  for (std::size_t i = 0; i < trees.size(); ++i) {
    expected[static_cast<std::size_t>(model.tree_info[i])] += detail::expected_value(trees[i]);
  }
  std::vector<float> values(static_cast<std::size_t>(rows.rows) * outputs * width);
  for_each_row(model, rows, [&](std::size_t row, std::span<const float> of_row) {
    std::vector<double> sums(outputs * width, 0);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const auto output = static_cast<std::size_t>(model.tree_info[i]);
      const detail::tree_shap one{trees[i], of_row, std::span(sums).subspan(output * width, width)};
      one.walk(0, {}, 1, 1, -1);
    }
    for (std::size_t output = 0; output < outputs; ++output) {
      sums[(output + 1) * width - 1] = expected[output];
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      values[row * sums.size() + i] = static_cast<float>(sums[i]);
    }
  });
  return values;
}

}  // namespace parx::trees
