// tree, forest: what training makes, field by field as XGBoost's JSON model has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <parx/trees/table.hpp>

namespace parx::inline PARX_ABI::trees {

/// An entry a node; node 0 is the root, and a node's right child follows its left one.
struct tree {
  std::vector<std::int32_t> left_children{};   ///< -1: a leaf
  std::vector<std::int32_t> right_children{};  ///< left + 1
  std::vector<std::int32_t> parents{};         ///< the root's: the greatest number
  std::vector<std::int32_t> split_indices{};   ///< the column
  /// x < condition goes left; NaN for a split by category; a leaf's value.
  std::vector<float> split_conditions{};
  std::vector<std::uint8_t> default_left{};  ///< 1: missing values go left
  std::vector<float> base_weights{};         ///< a leaf's value; else the weight it would have had
  std::vector<float> loss_changes{};         ///< the split's gain
  std::vector<float> sum_hessian{};
  std::vector<std::uint8_t> split_type{};  ///< 1: by category
  /// The categories that go right, node by node: categories_sizes[i] of them from
  /// categories_segments[i] on are node categories_nodes[i]'s, in ascending order.
  std::vector<std::int32_t> categories{};
  std::vector<std::int32_t> categories_nodes{};
  std::vector<std::int64_t> categories_segments{};
  std::vector<std::int64_t> categories_sizes{};

  [[nodiscard]] std::size_t nodes() const noexcept { return left_children.size(); }
  [[nodiscard]] bool is_leaf(std::int32_t node) const noexcept {
    return left_children[static_cast<std::size_t>(node)] < 0;
  }
  /// Whether a split by category sends this value right; a category that training did not see goes
  /// left.
  [[nodiscard]] bool lists(std::int32_t node, float value) const noexcept {
    const auto found = std::lower_bound(categories_nodes.begin(), categories_nodes.end(), node);
    if (found == categories_nodes.end() || *found != node || !(value >= 0 && value < 16777216)) {
      return false;
    }
    const auto i = static_cast<std::size_t>(found - categories_nodes.begin());
    const auto first = categories.begin() + categories_segments[i];
    return std::binary_search(first, first + categories_sizes[i], static_cast<std::int32_t>(value));
  }
  /// The child of a split to which a row with this value of the split's column goes.
  [[nodiscard]] std::int32_t next(std::int32_t node, float x) const noexcept {
    const auto at = static_cast<std::size_t>(node);
    bool left = default_left[at] != 0;
    if (!std::isnan(x)) left = split_type[at] == 0 ? x < split_conditions[at] : !lists(node, x);
    return left_children[at] + (left ? 0 : 1);
  }
  /// The leaf of a row; value(column) is NaN where it is missing.
  template <typename Value>
  [[nodiscard]] std::int32_t leaf_of(const Value& value) const {
    std::int32_t node = 0;
    while (!is_leaf(node)) node = next(node, value(split_indices[static_cast<std::size_t>(node)]));
    return node;
  }
};

/// visit(name, vector) for each field, in the order of the names.
template <typename Tree, typename Visit>
void visit_fields(Tree& each, const Visit& visit) {
  visit("base_weights", each.base_weights);
  visit("categories", each.categories);
  visit("categories_nodes", each.categories_nodes);
  visit("categories_segments", each.categories_segments);
  visit("categories_sizes", each.categories_sizes);
  visit("default_left", each.default_left);
  visit("left_children", each.left_children);
  visit("loss_changes", each.loss_changes);
  visit("parents", each.parents);
  visit("right_children", each.right_children);
  visit("split_conditions", each.split_conditions);
  visit("split_indices", each.split_indices);
  visit("split_type", each.split_type);
  visit("sum_hessian", each.sum_hessian);
}

/// The trees of all rounds, with what a prediction needs besides.
struct forest {
  std::vector<tree> trees{};              ///< round by round, each with a tree an output
  std::vector<std::int32_t> tree_info{};  ///< the output (class) of each tree
  int num_class = 0;                      ///< 0: one output
  int num_parallel_tree = 1;              ///< trees of a round for each output (a random forest)
  std::int64_t num_feature = 0;
  double base_score = 0;  ///< as a prediction: a probability for logistic
  std::string objective{};
  std::vector<std::pair<std::string, std::string>> objective_parameters{};
  std::vector<std::string> names{};                    ///< a column; empty: none
  std::vector<column_kind> kinds{};                    ///< a column; empty: all numeric
  std::vector<std::vector<std::string>> categories{};  ///< table::categories
  std::optional<std::int64_t> best_iteration{};

  [[nodiscard]] std::size_t outputs() const noexcept {
    return num_class > 1 ? static_cast<std::size_t>(num_class) : 1;
  }
  [[nodiscard]] std::size_t trees_a_round() const noexcept {
    return outputs() * static_cast<std::size_t>(num_parallel_tree);
  }
  [[nodiscard]] std::size_t rounds() const noexcept { return trees.size() / trees_a_round(); }
};

}  // namespace parx::trees
