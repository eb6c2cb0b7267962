// Cuts and quantiles are those of a sort of all ranks' numbers.
#include <parx/trees/selection.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <comm/jobs.hpp>
#include <trees/generated.hpp>

#include <parx/trees/bins.hpp>
#include <parx/trees/cuts.hpp>

namespace {

namespace trees = parx::trees;

/// The definition, by a sort: cut k is the smallest value such that the values up to it weigh more
/// than ceil(k W / bins).
std::vector<float> sorted_cuts(std::vector<std::pair<float, std::int64_t>> values, int bins) {
  std::sort(values.begin(), values.end());
  std::int64_t total = 0;
  std::vector<float> distinct;
  for (const auto& [x, weight] : values) {
    total += weight;
    if (distinct.empty() || distinct.back() != x) distinct.push_back(x);
  }
  if (distinct.size() <= static_cast<std::size_t>(bins)) {
    distinct.erase(distinct.begin());
    return distinct;
  }
  std::vector<float> cuts;
  for (std::int64_t k = 1; k < bins; ++k) {
    const std::int64_t rank = (k * total + bins - 1) / bins;
    std::int64_t up_to = 0;
    for (const auto& [x, weight] : values) {
      up_to += weight;
      if (up_to <= rank) continue;
      if (x > distinct.front() && (cuts.empty() || x > cuts.back())) cuts.push_back(x);
      break;
    }
  }
  return cuts;
}

}  // namespace

BOOST_AUTO_TEST_CASE(keys_have_the_order_of_the_numbers) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> ascending{-infinity, -3e38F, -1, -1e-45F, 0, 1e-45F, 0.5F, 1, infinity};
  for (std::size_t i = 0; i < ascending.size(); ++i) {
    BOOST_TEST(trees::value_of(trees::key_of(ascending[i])) == ascending[i]);
    if (i > 0) BOOST_TEST(trees::key_of(ascending[i - 1]) < trees::key_of(ascending[i]));
  }
  BOOST_TEST(trees::key_of(-0.0F) == trees::key_of(0.0F));
}

BOOST_AUTO_TEST_CASE(cuts_are_those_of_a_sort_for_any_distribution_of_rows_and_weights) {
  const trees::table all = generated::mixed(1200);
  for (const bool weighted : {false, true}) {
    trees::table rows = all;
    if (!weighted) rows.weight.clear();
    for (const int ranks : {1, 5}) {
      std::vector<trees::column_cuts> found;
      std::vector<std::uint32_t> weights(1200, 1);
      const std::string failure =
          jobs::run(jobs::kind::inproc, ranks, [&](parx::process_group& world) {
            const trees::table mine = generated::ragged_part(rows, world.rank(), ranks);
            const auto of_mine = trees::integer_weights(world, mine);
            const auto cuts = trees::find_cuts(world, mine, 9, of_mine, 16);
            if (ranks == 1 && weighted) weights = of_mine;
            if (world.rank() == 0) found = cuts;
          });
      BOOST_TEST(failure == "");
      if (weighted && ranks == 5) {  // the integers are those of the greatest weight of all ranks
        jobs::run(jobs::kind::inproc, 1, [&](parx::process_group& world) {
          weights = trees::integer_weights(world, rows);
        });
      }
      for (std::size_t c = 0; c < 9; ++c) {
        BOOST_TEST(found[c].has_missing == (c == 2 || c == 3 || c == 6));
        BOOST_TEST(found[c].categories == (c == 3 ? 20 : c == 7 ? 3 : 0));
        if (found[c].categories > 0) continue;
        std::vector<std::pair<float, std::int64_t>> values;
        for (std::size_t row = 0; row < 1200; ++row) {
          const float x = rows.values[row * 9 + c];
          if (!std::isnan(x)) values.emplace_back(x, weights[row]);
        }
        BOOST_TEST(found[c].cuts == sorted_cuts(values, 16), boost::test_tools::per_element());
        BOOST_TEST(found[c].smallest == std::min_element(values.begin(), values.end())->first);
        BOOST_TEST(found[c].largest == std::max_element(values.begin(), values.end())->first);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_bin_is_the_number_of_cuts_that_are_not_above) {
  trees::column_cuts column;
  column.cuts = {-1, 0.5F, 2, 7, 9};
  column.empty = false;
  const trees::detail::bin_finder bin(column);
  for (const float x : {-5.0F, -1.0F, 0.0F, 0.5F, 1.9F, 2.0F, 8.0F, 9.0F, 1e30F, HUGE_VALF}) {
    const auto below = std::upper_bound(column.cuts.begin(), column.cuts.end(), x);
    BOOST_TEST(bin(x) == static_cast<std::uint32_t>(below - column.cuts.begin()));
  }
  BOOST_TEST(bin(std::nanf("")) == 6U);
}
