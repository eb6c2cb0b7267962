// split: what a split gains, and which of two splits is the better one.
//
// The gain (Chen and Guestrin 2016, section 2.2). With all else fixed, a leaf with weight w whose
// rows have the gradients g_i and hessians h_i costs, to second order, G w + (H + lambda) w^2 / 2 +
// alpha |w|, where G = sum g_i and H = sum h_i. Setting the derivative to 0,
//
//   w = -T(G) / (H + lambda),  T(G) = sign(G) max(|G| - alpha, 0),
//
// and twice the cost taken away by it is T(G)^2 / (H + lambda). The gain of a split is that of the
// left child plus that of the right one less the parent's: twice the paper's, as in XGBoost, whose
// gamma is compared with it. Where w is clipped, by max_delta_step or by a monotone column's
// bounds, it is not at the minimum, and twice the gain at w is -(2 G w + (H + lambda) w^2).
//
// Bits. G and H are exact integers in units, and a G in double is one rounding of a number that all
// ranks share, so all ranks compute the same gain. It is rounded to float where XGBoost does that:
// splits that are equal but for rounding then tie there and here, and the lower column wins. What
// would be a * b + c is written as fma, or two compilers would make other bits of it.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <parx/core/parallel_for.hpp>
#include <parx/trees/cuts.hpp>
#include <parx/trees/fixed_point.hpp>
#include <parx/trees/options.hpp>

namespace parx::inline PARX_ABI::trees {

/// Where the weights of a node's leaves must lie, because of monotone columns above it.
struct weight_bounds {
  float lower = -std::numeric_limits<float>::infinity();
  float upper = std::numeric_limits<float>::infinity();
};

/// A node whose best split is sought.
struct node_sums {
  sums total;
  weight_bounds bounds;
  float gain = 0;  ///< gain_rule::gain of the node itself
};

/// The formulas above, for one tree.
class gain_rule {
 public:
  /// Of the rows of all ranks; or, of one of `ranks`, whose part of min_child_weight is asked for.
  gain_rule(const booster_options& options, const fixed_gradients& gradients, int ranks = 1)
      : options_(&options),
        g_unit_(gradients.g_unit),
        h_unit_(gradients.h_unit),
        least_h_(static_cast<std::int64_t>(std::clamp(
            std::ceil(options.min_child_weight / ranks / gradients.h_unit), 1.0, 0x1p62))),
        constrained_(std::any_of(options.monotone_constraints.begin(),
                                 options.monotone_constraints.end(),
                                 [](int sign) { return sign != 0; })) {}

  [[nodiscard]] double hessian(const sums& sum) const noexcept {
    return static_cast<double>(sum.h) * h_unit_;
  }
  [[nodiscard]] bool may_be_child(const sums& sum) const noexcept { return sum.h >= least_h_; }
  [[nodiscard]] float weight(const sums& sum, const weight_bounds& bounds) const noexcept {
    const float w = free_weight(sum);
    return constrained_ ? std::clamp(w, bounds.lower, bounds.upper) : w;
  }
  /// Without bounds: what categories are sorted by.
  [[nodiscard]] float free_weight(const sums& sum) const noexcept {
    if (!may_be_child(sum)) return 0;
    const double w = -shrunk(gradient_of(sum)) / (hessian(sum) + options_->lambda);
    const double most = options_->max_delta_step;
    return static_cast<float>(most > 0 && std::abs(w) > most ? std::copysign(most, w) : w);
  }
  /// Twice the cost that a leaf of these rows takes away.
  [[nodiscard]] float gain(const sums& sum, const weight_bounds& bounds) const noexcept {
    if (sum.h <= 0) return 0;
    const double g = gradient_of(sum);
    const double h = hessian(sum) + options_->lambda;
    if (options_->max_delta_step <= 0 && !constrained_) {
      const double t = shrunk(g);
      return static_cast<float>(t * t / h);
    }
    const auto w = static_cast<double>(weight(sum, bounds));
    return static_cast<float>(-std::fma(2 * g, w, h * w * w));
  }
  /// Of splits of a node at a column that must rise (1), fall (-1) or neither (0): split i sends
  /// left_g[i], left_h[i] left. -infinity where a child has too little weight, or the wrong order.
  void split_gains(const node_sums& node, int sign, std::size_t count, const std::int64_t* left_g,
                   const std::int64_t* left_h, float* gains) const noexcept {
    constexpr float none = -std::numeric_limits<float>::infinity();
    if (constrained_ || options_->alpha != 0 || options_->max_delta_step > 0) {
      for (std::size_t i = 0; i < count; ++i) {
        const sums left{left_g[i], left_h[i]};
        const sums right = node.total - left;
        const float rise = sign == 0 ? 0 : weight(right, node.bounds) - weight(left, node.bounds);
        const bool allowed = may_be_child(left) && may_be_child(right) &&
                             (sign > 0 ? rise >= 0 : rise <= 0 || sign == 0);
        gains[i] = allowed ? gain(left, node.bounds) + gain(right, node.bounds) - node.gain : none;
      }
      return;
    }
    // The same formula, without branches or comparisons of floats, so that it is vectorised.
    const double lambda = options_->lambda;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t right_h = node.total.h - left_h[i];
      const double left = static_cast<double>(left_g[i]) * g_unit_;
      const double right = static_cast<double>(node.total.g - left_g[i]) * g_unit_;
      const double left_cost = left * left / (static_cast<double>(left_h[i]) * h_unit_ + lambda);
      const double right_cost = right * right / (static_cast<double>(right_h) * h_unit_ + lambda);
      const float gained =
          static_cast<float>(left_cost) + static_cast<float>(right_cost) - node.gain;
      gains[i] = std::min(left_h[i], right_h) >= least_h_ ? gained : none;
    }
  }

 private:
  [[nodiscard]] double gradient_of(const sums& sum) const noexcept {
    return static_cast<double>(sum.g) * g_unit_;
  }
  [[nodiscard]] double shrunk(double g) const noexcept {
    if (g > options_->alpha) return g - options_->alpha;
    return g < -options_->alpha ? g + options_->alpha : 0;
  }

  const booster_options* options_;
  double g_unit_;
  double h_unit_;
  std::int64_t least_h_;  ///< of a child, in units
  bool constrained_;
};

/// below: x < a cut goes left. one: the one category goes right. several: the first (missing left)
/// or all but the last (missing right) of the categories in the order of their weights.
enum class split_kind : std::int32_t { below, one, several };
enum class missing_side : std::int32_t { right, left };

/// A split of a node, as the ranks exchange it: no padding, 40 bytes.
struct split_candidate {
  float gain = 0;
  std::int32_t column = -1;  ///< -1: there is none
  std::int32_t order = 0;    ///< of the column's splits, the one found first has the lowest
  /// below: the number of bins that go left. one: the category. several: how many of the sorted
  /// categories go right.
  std::int32_t position = 0;
  split_kind kind = split_kind::below;
  missing_side missing = missing_side::right;
  std::int64_t left_g = 0;  ///< in units
  std::int64_t left_h = 0;

  [[nodiscard]] sums left() const noexcept { return {left_g, left_h}; }
};

/// A total order, so that the best of all is the same for any grouping of them: the greater gain,
/// then the lower column, then the one that a scan of the column meets first.
[[nodiscard]] inline bool is_better(const split_candidate& a, const split_candidate& b) noexcept {
  if ((a.column < 0) != (b.column < 0)) return b.column < 0;
  if (a.gain != b.gain) return a.gain > b.gain;
  return a.column != b.column ? a.column < b.column : a.order < b.order;
}

/// The best split of a node at one column; column -1 where none gains. `cells` are the node's
/// histogram of the column: bins, or categories, then the missing values where it has_missing.
class column_search {
 public:
  column_search(const gain_rule& rule, const booster_options& options, const node_sums& node,
                std::int32_t column, const column_cuts& cuts, std::span<const sums> cells)
      : rule_(&rule), options_(&options), node_(&node), column_(column), cuts_(&cuts) {
    values_ = cells.first(static_cast<std::size_t>(cuts.value_bins()));
    if (cuts.has_missing) missing_ = cells.back();
    const auto place = static_cast<std::size_t>(column);
    if (place < options.monotone_constraints.size()) sign_ = options.monotone_constraints[place];
  }

  [[nodiscard]] split_candidate best() {
    if (cuts_->categories == 0) {
      scan_bins();
    } else if (cuts_->categories < options_->max_cat_to_onehot) {
      scan_single_categories();
    } else {
      scan_sorted_categories();
    }
    judge();
    return best_;
  }

  /// The categories by weight, those without rows included, as `several` counts them.
  [[nodiscard]] std::vector<std::int32_t> sorted_categories() const {
    std::vector<std::int32_t> sorted(values_.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    std::vector<float> weight;
    for (const sums& each : values_) weight.push_back(rule_->free_weight(each));
    std::stable_sort(sorted.begin(), sorted.end(), [&weight](std::int32_t a, std::int32_t b) {
      return weight[static_cast<std::size_t>(a)] < weight[static_cast<std::size_t>(b)];
    });
    return sorted;
  }

 private:
  [[nodiscard]] bool has_missing_rows() const noexcept { return missing_ != sums{}; }

  void offer(const sums& left, split_kind kind, missing_side missing, std::size_t position) {
    if (count_ == splits_.size()) judge();
    left_g_[count_] = left.g, left_h_[count_] = left.h;
    splits_[count_++] = {kind, missing, static_cast<std::int32_t>(position)};
  }
  /// Takes the best of the splits that were offered; `order` counts up from scan to scan.
  void judge() {
    std::array<float, splits_at_a_time> gains;
    rule_->split_gains(*node_, sign_, count_, left_g_.data(), left_h_.data(), gains.data());
    for (std::size_t i = 0; i < count_; ++i, ++next_order_) {
      if (!(gains[i] > best_.gain)) continue;  // the first of equals stays; NaN never wins
      best_ = {gains[i],           column_,    next_order_, splits_[i].position, splits_[i].kind,
               splits_[i].missing, left_g_[i], left_h_[i]};
    }
    count_ = 0;
  }

  /// Missing values right, cuts ascending; then, if there are such rows, left, cuts descending. A
  /// bin without rows repeats the split before it.
  void scan_bins() {
    sums left;
    const std::size_t bins = values_.size();
    for (std::size_t bin = 0; bin < bins; ++bin) {
      if (values_[bin] == sums{}) continue;
      left += values_[bin];
      const bool all_values = bin + 1 == bins;
      if (all_values && !std::isfinite(upper_end())) break;
      offer(left, split_kind::below, missing_side::right, bin + 1);
    }
    if (!has_missing_rows()) return;
    left = node_->total;
    for (std::size_t bin = bins; bin-- > 0;) {
      if (values_[bin] == sums{}) continue;
      left = left - values_[bin];
      offer(left, split_kind::below, missing_side::left, bin);
    }
  }
  [[nodiscard]] float upper_end() const noexcept;

  void scan_single_categories() {
    for (std::size_t category = 0; category < values_.size(); ++category) {
      sums right = values_[category];
      offer(node_->total - right, split_kind::one, missing_side::left, category);
      if (!has_missing_rows()) continue;
      right += missing_;
      offer(node_->total - right, split_kind::one, missing_side::right, category);
    }
  }

  void scan_sorted_categories() {
    const std::vector<std::int32_t> sorted = sorted_categories();
    const auto cell = [&](std::size_t i) { return values_[static_cast<std::size_t>(sorted[i])]; };
    const std::size_t most =
        std::min(sorted.size(), static_cast<std::size_t>(options_->max_cat_threshold));
    sums right;
    for (std::size_t i = 0; i + 1 < most; ++i) {
      right += cell(i);
      offer(node_->total - right, split_kind::several, missing_side::left, i + 1);
    }
    sums left;
    for (std::size_t i = sorted.size() - 1; i + most > sorted.size(); --i) {
      left += cell(i);
      offer(left, split_kind::several, missing_side::right, i);
    }
  }

  const gain_rule* rule_;
  const booster_options* options_;
  const node_sums* node_;
  std::int32_t column_;
  const column_cuts* cuts_;
  std::span<const sums> values_;
  sums missing_;
  int sign_ = 0;

  static constexpr std::size_t splits_at_a_time = 128;
  struct offered {
    split_kind kind;
    missing_side missing;
    std::int32_t position;
  };
  std::size_t count_ = 0;  ///< of the splits that are not judged yet
  std::array<std::int64_t, splits_at_a_time> left_g_;
  std::array<std::int64_t, splits_at_a_time> left_h_;
  std::array<offered, splits_at_a_time> splits_;
  std::int32_t next_order_ = 0;
  split_candidate best_;
};

/// What x is compared with so that the first `bins` bins of a column go left. No value is below all
/// of them or above: where all values go one way, and the missing ones the other, XGBoost puts the
/// threshold a little outside, and so does this.
[[nodiscard]] inline float threshold_of(const column_cuts& column, std::size_t bins) noexcept {
  if (bins == 0) return column.smallest - (std::abs(column.smallest) + 1e-5F);
  if (bins > column.cuts.size()) return column.largest + (std::abs(column.largest) + 1e-5F);
  return column.cuts[bins - 1];
}
inline float column_search::upper_end() const noexcept {
  return threshold_of(*cuts_, values_.size());
}

/// A column to be searched for the best split of a node, and its cells of that node's histogram.
struct search_task {
  std::size_t node;
  std::size_t column;
  std::span<const sums> cells;
};

[[nodiscard]] inline column_search search_of(const gain_rule& rule, const booster_options& options,
                                             std::span<const column_cuts> cuts,
                                             const node_sums& node, const search_task& task) {
  return {rule,      options, node, static_cast<std::int32_t>(task.column), cuts[task.column],
          task.cells};
}

/// Of each task, by the threads of this rank. `nodes` are the sums of the rows that cells are of.
[[nodiscard]] inline std::vector<split_candidate> best_splits(const gain_rule& rule,
                                                              const booster_options& options,
                                                              std::span<const column_cuts> cuts,
                                                              std::span<const node_sums> nodes,
                                                              std::span<const search_task> tasks) {
  std::vector<split_candidate> found(tasks.size());
  parallel_for(tasks.size(), 16, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      found[i] = search_of(rule, options, cuts, nodes[tasks[i].node], tasks[i]).best();
    }
  });
  return found;
}

/// nullptr where there is none. Tasks are in the order of nodes, then of columns.
[[nodiscard]] inline const search_task* find_task(std::span<const search_task> tasks,
                                                  std::size_t node, std::size_t column) {
  const auto found = std::lower_bound(tasks.begin(), tasks.end(), std::pair{node, column},
                                      [](const search_task& task, const auto& wanted) {
                                        return std::pair{task.node, task.column} < wanted;
                                      });
  const bool is_there = found != tasks.end() && found->node == node && found->column == column;
  return is_there ? &*found : nullptr;
}

}  // namespace parx::trees
