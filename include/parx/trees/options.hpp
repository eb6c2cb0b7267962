// booster_options: what a booster is made with, in XGBoost's words and with its defaults.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/trees/objectives.hpp>

namespace parx::inline PARX_ABI::trees {

/// depthwise: all nodes of a level, then the next. lossguide: always the node whose split gains
/// most (leaf-wise, as LightGBM).
enum class grow_policy { depthwise, lossguide };

/// LightGBM's words. data: the histograms of all columns are summed over ranks. voting: those of
/// the 2 top_k columns alone that the ranks vote for (voting.hpp), for slow links; other numbers of
/// ranks give other trees then. It sends less only where 4 top_k < columns, and is data where 2
/// top_k >= columns.
enum class tree_learner { data, voting };

struct booster_options {
  trees::objective objective = squared_error{};
  int num_round = 100;
  int max_depth = 6;   ///< 0: no bound; then max_leaves is one
  int max_leaves = 0;  ///< 0: no bound
  trees::grow_policy grow_policy = grow_policy::depthwise;
  double learning_rate = 0.3;    ///< XGBoost's eta
  double lambda = 1;             ///< of w^2 / 2 in a leaf's cost
  double alpha = 0;              ///< of |w|
  double gamma = 0;              ///< the gain that a split must have (XGBoost's min_split_loss)
  double min_child_weight = 1;   ///< the least sum of hessians of a child
  double max_delta_step = 0;     ///< the greatest |w|; 0: no bound
  double subsample = 1;          ///< the part of the rows that a tree is made of
  double colsample_bytree = 1;   ///< the part of the columns of a tree,
  double colsample_bylevel = 1;  ///< of those at a depth,
  double colsample_bynode = 1;   ///< and of those at a node
  int max_bin = 256;             ///< 2 ... 65,535
  int max_cat_to_onehot = 4;     ///< with fewer categories, each is split from the rest
  int max_cat_threshold = 64;    ///< the most categories that the smaller side of a split lists
  std::vector<int> monotone_constraints{};  ///< by column: 1 rising, -1 falling, 0 free; or empty
  std::optional<double> base_score{};       ///< as a prediction. Default: 0.5; the quantile itself
                                            ///< of all labels for absolute_error and quantile
  std::uint64_t seed = 0;
  trees::tree_learner tree_learner = trees::tree_learner::data;
  int top_k = 20;  ///< of voting: the columns of each node that a rank votes for
  /// 2 ... 254: gradients in so few units, rounded at random by the row's number (LightGBM's
  /// quantised training, Shi 2022); histograms are sent in 1/2 or 1/4 of the bytes. 0: not.
  int num_grad_quant_bins = 0;
};

/// Throws usage_error, which names the option.
inline void check_options(const booster_options& given) {
  const auto fraction = [](double value, const char* name) {
    require(value > 0 && value <= 1, "booster: {} = {} is not a part in (0, 1]", name, value);
  };
  const auto not_negative = [](double value, const char* name) {
    require(value >= 0 && std::isfinite(value), "booster: {} = {} is not a number from 0", name,
            value);
  };
  require(given.num_round >= 1, "booster: num_round = {}; there is at least one", given.num_round);
  require(given.max_depth >= 0 && given.max_depth <= 30,
          "booster: max_depth = {} is not one of 0 (no bound) to 30", given.max_depth);
  require(given.max_leaves == 0 || given.max_leaves >= 2,
          "booster: max_leaves = {}; 0 is no bound, and 2 the least", given.max_leaves);
  require(given.max_depth > 0 || given.max_leaves > 0,
          "booster: max_depth = 0 and max_leaves = 0 leave a tree without a bound; set one");
  require(given.learning_rate > 0 && std::isfinite(given.learning_rate),
          "booster: learning_rate = {} is not above 0", given.learning_rate);
  not_negative(given.lambda, "lambda");
  not_negative(given.alpha, "alpha");
  not_negative(given.gamma, "gamma");
  not_negative(given.min_child_weight, "min_child_weight");
  not_negative(given.max_delta_step, "max_delta_step");
  fraction(given.subsample, "subsample");
  fraction(given.colsample_bytree, "colsample_bytree");
  fraction(given.colsample_bylevel, "colsample_bylevel");
  fraction(given.colsample_bynode, "colsample_bynode");
  require(given.max_bin >= 2 && given.max_bin <= 65535,
          "booster: max_bin = {} is not one of 2 to 65,535", given.max_bin);
  require(given.max_cat_threshold >= 1, "booster: max_cat_threshold = {}; there is at least one",
          given.max_cat_threshold);
  require(given.top_k >= 1, "booster: top_k = {}; there is at least one", given.top_k);
  require(given.num_grad_quant_bins == 0 ||
              (given.num_grad_quant_bins >= 2 && given.num_grad_quant_bins <= 254),
          "booster: num_grad_quant_bins = {} is not one of 0 (exact) and 2 to 254",
          given.num_grad_quant_bins);
  for (const int sign : given.monotone_constraints) {
    require(sign >= -1 && sign <= 1, "booster: a monotone constraint is 1, 0 or -1, not {}", sign);
  }
}

}  // namespace parx::trees
