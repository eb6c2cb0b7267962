// explain: the predicted time of each algorithm for a call, which one is chosen, and why.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <parx/comm/schedule/catalog.hpp>
#include <parx/comm/schedule/rules.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI {

struct explanation {
  algorithm name = algorithm::automatic;
  double seconds = 0;  ///< predicted; NaN if the algorithm cannot do the call
  bool chosen = false;
  std::string why{};  ///< "cheapest", "rules.txt:3 says so", "2.1 x the cheapest", "needs ..."
};

/// Every algorithm of shape.what, the cheapest first, those that cannot do the call last.
[[nodiscard]] inline std::vector<explanation> explain_table(
    const call_shape& shape, const link_costs& costs = {},
    const std::vector<algorithm_rule>& rules = {}) {
  std::vector<explanation> rows;
  const prices::load load = detail::load_of(shape);
  const algorithm cheapest = choose(shape, costs);
  const algorithm chosen = choose(shape, costs, rules);
  double least = 0;
  for (const catalog_entry& each : catalog()) {
    if (each.what != shape.what) continue;
    explanation row{.name = each.name, .chosen = each.name == chosen};
    if (const char* objection = objection_to(each, shape)) {
      row.seconds = std::numeric_limits<double>::quiet_NaN();
      row.why = objection;
    } else {
      row.seconds = each.price(load, costs);
    }
    if (each.name == cheapest) least = row.seconds;
    rows.push_back(std::move(row));
  }
  const algorithm_rule* rule = find_rule(shape, rules);
  for (explanation& row : rows) {
    if (!row.why.empty()) continue;
    if (row.chosen && rule != nullptr && rule->use == row.name) {
      row.why = formatted("{} says so", rule->source);
    } else if (row.name == cheapest) {
      row.why = "cheapest";
    } else if (is_serial_anyway(shape) &&
               find_algorithm(shape.what, row.name)->order != reduction_order::serial) {
      row.why = "not in serial order, which is kept where the ranks share memory";
    } else {
      row.why = row.seconds > least && least > 0
                    ? formatted("{:.3g} x the cheapest", row.seconds / least)
                    : "as cheap";
    }
  }
  std::ranges::stable_sort(rows, {}, [](const explanation& row) {
    return std::isnan(row.seconds) ? std::numeric_limits<double>::infinity() : row.seconds;
  });
  return rows;
}

/// "all_reduce of 1048576 bytes on 8 ranks", then a line for each algorithm.
[[nodiscard]] inline std::string explain_text(const call_shape& shape,
                                              const std::vector<explanation>& rows) {
  std::string text = formatted("{} of {:.0f} bytes on {} ranks\n", name_of(shape.what),
                               shape.bytes(), shape.world);
  for (const explanation& row : rows) {
    const std::string time =
        std::isnan(row.seconds) ? "-" : formatted("{:.1f} us", row.seconds * 1e6);
    text += formatted("{} {:<15} {:>14}  {}\n", row.chosen ? '*' : ' ', name_of(row.name), time,
                      row.why);
  }
  return text;
}

}  // namespace parx
