// predict: what a forest says of rows.
//
// A margin is a float to which the trees' values are added in the order of trees, as in training,
// so both have the same bits. Where early stopping has found a best round, later rounds are left
// out. All is local, and divided among the threads of the rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/trees/objectives.hpp>
#include <parx/trees/table.hpp>
#include <parx/trees/tree.hpp>

namespace parx::inline PARX_ABI::trees {

/// The trees up to the best round, of all rounds where there is none.
[[nodiscard]] inline std::span<const tree> used_trees(const forest& model) {
  const std::size_t rounds =
      model.best_iteration ? static_cast<std::size_t>(*model.best_iteration) + 1 : model.rounds();
  return std::span(model.trees).first(std::min(model.trees.size(), rounds * model.trees_a_round()));
}

/// visit(row number, values), where values has the model's columns, NaN for what is missing. By all
/// threads. Throws usage_error for rows of other columns; of sparse rows, columns that the model
/// does not know are left out.
template <typename Visit>
void for_each_row(const forest& model, const table& rows, const Visit& visit) {
  require(rows.sparse() || rows.rows == 0 || rows.columns == model.num_feature,
          "the rows have {} columns, the model has {}", rows.columns, model.num_feature);
  const auto columns = static_cast<std::size_t>(model.num_feature);
  parallel_for(static_cast<std::size_t>(rows.rows), 64, [&](std::size_t first, std::size_t last) {
    std::vector<float> dense(rows.sparse() ? columns : 0, std::numeric_limits<float>::quiet_NaN());
    for (std::size_t row = first; row < last; ++row) {
      if (!rows.sparse()) {
        visit(row, std::span(rows.values).subspan(row * columns, columns));
        continue;
      }
      const auto begin = static_cast<std::size_t>(rows.row_begin[row]);
      const auto end = static_cast<std::size_t>(rows.row_begin[row + 1]);
      const auto put = [&](const auto& value_of_entry) {
        for (std::size_t i = begin; i < end; ++i) {
          const auto at = static_cast<std::size_t>(rows.column[i]);
          if (at < columns) dense[at] = value_of_entry(i);
        }
      };
      put([&](std::size_t i) { return rows.value[i]; });
      visit(row, std::span<const float>(dense));
      put([](std::size_t) { return std::numeric_limits<float>::quiet_NaN(); });
    }
  });
}

/// The margins of one row, added to `out`, which begins with the base score's.
inline void add_margins(const forest& model, std::span<const float> row, std::span<float> out) {
  const std::span<const tree> trees = used_trees(model);
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const std::int32_t leaf = trees[i].leaf_of(
        [row](std::int32_t column) { return row[static_cast<std::size_t>(column)]; });
    out[static_cast<std::size_t>(model.tree_info[i])] +=
        trees[i].split_conditions[static_cast<std::size_t>(leaf)];
  }
}

/// Rows x outputs: the sums of leaves and base.
[[nodiscard]] inline std::vector<float> predict_margins(const forest& model, const table& rows) {
  const objective loss = objective_of(model);
  const auto base = static_cast<float>(loss.to_margin(model.base_score));
  const std::size_t outputs = model.outputs();
  std::vector<float> margins(static_cast<std::size_t>(rows.rows) * outputs, base);
  for_each_row(model, rows, [&](std::size_t row, std::span<const float> values) {
    add_margins(model, values, std::span(margins).subspan(row * outputs, outputs));
  });
  return margins;
}

/// Rows x outputs: probabilities, means or numbers, as the objective has them.
[[nodiscard]] inline std::vector<float> predict(const forest& model, const table& rows) {
  std::vector<float> predictions = predict_margins(model, rows);
  objective_of(model).to_prediction(predictions);
  return predictions;
}

/// The same of one row of the model's columns, NaN where a value is missing; a value an output.
[[nodiscard]] inline std::vector<float> predict(const forest& model, std::span<const float> row) {
  require(row.size() == static_cast<std::size_t>(model.num_feature),
          "the row has {} values, the model {} columns", row.size(), model.num_feature);
  const objective loss = objective_of(model);
  std::vector<float> predictions(model.outputs(),
                                 static_cast<float>(loss.to_margin(model.base_score)));
  add_margins(model, row, predictions);
  loss.to_prediction(predictions);
  return predictions;
}

/// Rows x trees: the number of the node, in its tree, in which each row ends.
[[nodiscard]] inline std::vector<std::int32_t> predict_leaves(const forest& model,
                                                              const table& rows) {
  const std::span<const tree> trees = used_trees(model);
  std::vector<std::int32_t> leaves(static_cast<std::size_t>(rows.rows) * trees.size());
  for_each_row(model, rows, [&](std::size_t row, std::span<const float> values) {
    for (std::size_t i = 0; i < trees.size(); ++i) {
      leaves[row * trees.size() + i] = trees[i].leaf_of(
          [values](std::int32_t column) { return values[static_cast<std::size_t>(column)]; });
    }
  });
  return leaves;
}

}  // namespace parx::trees
