// The best split of a column is the one that trying all of them finds.
#include <parx/trees/split.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <trees/generated.hpp>

namespace {

namespace trees = parx::trees;
using trees::sums;

/// Eight codes with a few rows each, then the missing values: multiples of 1/4, so that every sum
/// is exact in double.
std::vector<sums> cells(std::uint64_t seed, bool missing) {
  std::vector<sums> made;
  for (std::uint64_t code = 0; code < 8; ++code) {
    made.push_back({static_cast<std::int64_t>(generated::uniform(seed, code) * 40) - 20,
                    static_cast<std::int64_t>(generated::uniform(seed, code + 50) * 12)});
  }
  made.push_back(missing ? sums{static_cast<std::int64_t>(seed % 7) - 3, 4} : sums{});
  return made;
}

/// Twice what the formula in split.hpp's text says, in doubles.
double gain(double g, double h, const trees::booster_options& options) {
  const double t = std::copysign(std::max(std::abs(g) - options.alpha, 0.0), g);
  return t * t / (h + options.lambda);
}

struct tried {
  double best = 0;
  void side(const sums& left, const sums& all, const trees::booster_options& options) {
    const sums right = all - left;
    const double gl = static_cast<double>(left.g) / 4, hl = static_cast<double>(left.h) / 4;
    const double gr = static_cast<double>(right.g) / 4, hr = static_cast<double>(right.h) / 4;
    if (left.h <= 0 || right.h <= 0) return;
    if (hl < options.min_child_weight || hr < options.min_child_weight) return;
    best = std::max(
        best, gain(gl, hl, options) + gain(gr, hr, options) - gain(gl + gr, hl + hr, options));
  }
};

trees::column_cuts eight(bool categorical) {
  trees::column_cuts column;
  column.empty = false;
  column.has_missing = true;
  column.categories = categorical ? 8 : 0;
  if (!categorical) column.cuts = {1, 2, 3, 4, 5, 6, 7};
  column.largest = 7;
  return column;
}

trees::split_candidate search(const std::vector<sums>& histogram, const trees::column_cuts& column,
                              const trees::booster_options& options, sums* total = nullptr) {
  trees::fixed_gradients units;
  units.g_unit = units.h_unit = 0.25;
  const trees::gain_rule rule(options, units);
  trees::node_sums node;
  for (const sums& each : histogram) node.total += each;
  node.gain = rule.gain(node.total, node.bounds);
  if (total != nullptr) *total = node.total;
  return trees::column_search(rule, options, node, 0, column, histogram).best();
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_best_threshold_is_found_with_missing_values_on_either_side) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const trees::booster_options options{.lambda = static_cast<double>(seed % 3),
                                         .alpha = static_cast<double>(seed % 2) / 2,
                                         .min_child_weight = static_cast<double>(seed % 4)};
    const auto histogram = cells(seed, seed % 5 != 0);
    sums all;
    const auto found = search(histogram, eight(false), options, &all);
    tried best;
    for (std::size_t bins = 0; bins <= 8; ++bins) {
      sums left;
      for (std::size_t i = 0; i < bins; ++i) left += histogram[i];
      best.side(left, all, options);
      left += histogram[8];
      best.side(left, all, options);
    }
    BOOST_TEST(std::abs(static_cast<double>(found.gain) - best.best) <= 1e-4 * (1 + best.best));
  }
}

BOOST_AUTO_TEST_CASE(sorted_categories_find_the_best_of_all_sets) {
  // Fisher 1958: without penalties a best set is a prefix in the order of G / H.
  const trees::booster_options options{.lambda = 0, .min_child_weight = 0, .max_cat_threshold = 64};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    auto histogram = cells(seed, false);
    for (sums& each : histogram) each.h += &each == &histogram.back() ? 0 : 1;
    sums all;
    const auto found = search(histogram, eight(true), options, &all);
    tried best;
    for (unsigned set = 0; set < 256; ++set) {
      sums left;
      for (std::size_t i = 0; i < 8; ++i) {
        if ((set >> i & 1U) != 0) left += histogram[i];
      }
      best.side(left, all, options);
    }
    BOOST_TEST(std::abs(static_cast<double>(found.gain) - best.best) <= 1e-4 * (1 + best.best));
  }
}

BOOST_AUTO_TEST_CASE(few_categories_are_split_one_from_the_rest) {
  const trees::booster_options options{.max_cat_to_onehot = 9};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto histogram = cells(seed, true);
    sums all;
    const auto found = search(histogram, eight(true), options, &all);
    tried best;
    for (std::size_t one = 0; one < 8; ++one) {
      sums right = histogram[one];
      best.side(all - right, all, options);
      right += histogram[8];
      best.side(all - right, all, options);
    }
    BOOST_TEST(std::abs(static_cast<double>(found.gain) - best.best) <= 1e-4 * (1 + best.best));
    if (found.column >= 0) BOOST_TEST((found.kind == trees::split_kind::one));
  }
}

BOOST_AUTO_TEST_CASE(a_monotone_column_is_split_only_where_the_weights_rise) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    trees::booster_options options{.monotone_constraints = {1}};
    const auto histogram = cells(seed, false);
    sums all;
    const auto found = search(histogram, eight(false), options, &all);
    if (found.column < 0) continue;
    const auto weight = [&](const sums& of) {
      return -static_cast<double>(of.g) / (static_cast<double>(of.h) + 4);
    };
    BOOST_TEST(weight(found.left()) <= weight(all - found.left()));
  }
}

BOOST_AUTO_TEST_CASE(the_better_of_two_is_a_total_order) {
  using candidate = trees::split_candidate;
  const candidate none;
  const candidate low{.gain = 1, .column = 4, .order = 2};
  const candidate column{.gain = 1, .column = 3, .order = 9};
  const candidate high{.gain = 2, .column = 9};
  const std::vector<candidate> ascending{none, low, column, high};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    for (std::size_t j = 0; j < ascending.size(); ++j) {
      BOOST_TEST(trees::is_better(ascending[i], ascending[j]) == (i > j));
    }
  }
}
