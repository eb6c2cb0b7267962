// boosting: the margins of one table's rows, and the rounds that a forest adds to them.
//
// A margin is a float to which the trees' values are added in the order of trees. It is so in
// training, in prediction and when training goes on from a saved model, so all three have the same
// bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/bins.hpp>
#include <parx/trees/cuts.hpp>
#include <parx/trees/fixed_point.hpp>
#include <parx/trees/growth.hpp>
#include <parx/trees/huge_pages.hpp>
#include <parx/trees/leaf_refit.hpp>
#include <parx/trees/options.hpp>
#include <parx/trees/sampling.hpp>
#include <parx/trees/training_rows.hpp>

namespace parx::inline PARX_ABI::trees {

/// A margin a row and output, row by row.
class table_margins {
 public:
  table_margins(const table& rows, std::size_t outputs, float base)
      : rows_(&rows),
        outputs_(outputs),
        values_(static_cast<std::size_t>(rows.rows) * outputs, base) {}

  [[nodiscard]] std::span<const float> values() const noexcept { return values_; }
  [[nodiscard]] const table& rows() const noexcept { return *rows_; }

  /// Adds a tree by walking each row down.
  void add(const tree& grown, std::size_t output) {
    parallel_for(static_cast<std::size_t>(rows_->rows), 1024,
                 [&](std::size_t first, std::size_t last) {
                   for (std::size_t row = first; row < last; ++row) {
                     const std::int32_t leaf = grown.leaf_of([&](std::int32_t column) {
                       return rows_->at(static_cast<std::int64_t>(row), column);
                     });
                     values_[row * outputs_ + output] +=
                         grown.split_conditions[static_cast<std::size_t>(leaf)];
                   }
                 });
  }
  /// Adds the tree that was just made from these rows.
  void add(const tree& grown, std::span<const grown_leaf> leaves, std::size_t output) {
    parallel_for(leaves.size(), 1, [&](std::size_t first, std::size_t last) {
      for (const grown_leaf& leaf : leaves.subspan(first, last - first)) {
        const float value = grown.split_conditions[static_cast<std::size_t>(leaf.node)];
        for (const std::uint32_t row : leaf.rows) values_[row * outputs_ + output] += value;
      }
    });
  }

 private:
  const table* rows_;
  std::size_t outputs_;
  row_vector<float> values_;
};

/// Makes the trees of a round from this rank's rows.
class boosting {
 public:
  /// Collective: cuts and bins. `rows` and `options` are kept by reference; `margins` begin with
  /// the base score.
  boosting(process_group& group, const table& rows, const booster_options& options,
           const row_numbers& numbers)
      : group_(&group),
        options_(&options),
        numbers_(numbers),
        outputs_(static_cast<std::size_t>(options.objective.outputs())),
        weights_(integer_weights(group, rows)),
        cuts_(find_cuts(group, rows, numbers.columns, weights_, options.max_bin)),
        bins_(rows, cuts_),
        grower_(group, bins_, cuts_, options) {}
  boosting(const boosting&) = delete;
  boosting& operator=(const boosting&) = delete;

  [[nodiscard]] std::span<const column_cuts> cuts() const noexcept { return cuts_; }

  /// Collective. One tree for each output, added to `margins`. All gradients are of the margins
  /// before the round.
  [[nodiscard]] std::vector<tree> make_round(int round, table_margins& margins) {
    const table& rows = margins.rows();
    const auto count = static_cast<std::size_t>(rows.rows);
    gradients_.resize(count * outputs_);
    options_->objective.gradients(margins.values(), rows, gradients_);
    std::vector<tree> made;
    for (std::size_t output = 0; output < outputs_; ++output) {
      const std::uint64_t number = static_cast<std::uint64_t>(round) * outputs_ + output;
      const std::uint64_t stream = tree_seed(options_->seed, number);
      fix_gradients(*group_, sampled(output, stream), numbers_.rows, fixed_,
                    {options_->num_grad_quant_bins, hash_of(stream, 4), numbers_.first_row});
      made.push_back(grower_.grow(fixed_, stream));
      const std::span<const grown_leaf> leaves = grower_.leaves();
      if (const std::optional<double> part = options_->objective.leaf_quantile()) {
        refit_leaves(*group_, made.back(), leaves, *part, options_->learning_rate, weights_,
                     [&](std::size_t row) {
                       return rows.label[row] - margins.values()[row * outputs_ + output];
                     });
      }
      margins.add(made.back(), leaves, output);
    }
    return made;
  }

  /// Collective. The quantile of all labels, to begin with where leaves are quantiles.
  [[nodiscard]] float label_quantile(const table& rows, double part) {
    return quantiles(*group_, 1, part, weights_,
                     [&](std::size_t, const auto& put) {
                       for (std::size_t row = 0; row < rows.label.size(); ++row)
                         put(row, rows.label[row]);
                     })
        .front();
  }

 private:
  /// The gradients of one output, 0 for rows that the tree does not see.
  [[nodiscard]] std::span<const gradient> sampled(std::size_t output, std::uint64_t stream) {
    if (outputs_ == 1 && options_->subsample >= 1) return gradients_;
    of_output_.resize(gradients_.size() / outputs_);
    const auto rows_of_a_block = std::size_t{16384};
    parallel_for(of_output_.size(), rows_of_a_block, [&](std::size_t first, std::size_t last) {
      for (std::size_t row = first; row < last; ++row) {
        const auto global = numbers_.first_row + static_cast<std::int64_t>(row);
        const bool taken =
            options_->subsample >= 1 || takes_row(stream, global, options_->subsample);
        of_output_[row] = taken ? gradients_[row * outputs_ + output] : gradient{0, 0};
      }
    });
    return of_output_;
  }

  process_group* group_;
  const booster_options* options_;
  row_numbers numbers_;
  std::size_t outputs_;
  std::vector<std::uint32_t> weights_;
  std::vector<column_cuts> cuts_;
  bins bins_;
  tree_grower grower_;
  std::vector<gradient> gradients_;
  std::vector<gradient> of_output_;
  fixed_gradients fixed_;
};

}  // namespace parx::trees
