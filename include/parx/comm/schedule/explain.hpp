// explain: the predicted time of each algorithm for a call, which one is chosen, and why.
#pragma once

#include <string>
#include <vector>

#include <parx/comm/schedule/rules.hpp>

namespace parx::inline PARX_ABI {

struct explanation {
  algorithm name = algorithm::automatic;
  double seconds = 0;  ///< predicted; NaN if the algorithm cannot do the call
  bool chosen = false;
  std::string why{};  ///< "cheapest", "rules.txt:3 says so", "2.1 x the cheapest", "needs ..."
};

/// Every algorithm of shape.what, the cheapest first, those that cannot do the call last.
[[nodiscard]] std::vector<explanation> explain_table(const call_shape& shape,
                                                     const link_costs& costs = {},
                                                     const std::vector<algorithm_rule>& rules = {});

/// "all_reduce of 1048576 bytes on 8 ranks", then a line for each algorithm.
[[nodiscard]] std::string explain_text(const call_shape& shape,
                                       const std::vector<explanation>& rows);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/comm/schedule/detail/explain_impl.hpp>
#endif
