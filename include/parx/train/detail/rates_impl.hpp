// Definitions of rates.hpp.
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/train/detail/rates.hpp>

namespace parx::inline PARX_ABI::train::detail {

PARX_INLINE void group_rates::compare(std::optional<double> learning_rate) {
  highest_ = *std::max_element(rates_.begin(), rates_.end());
  differ_ = *std::min_element(rates_.begin(), rates_.end()) < highest_;
  require(!differ_ || !learning_rate,
          "trainer: learning_rate is {}, but the optimizer's groups have rates of their own, {}; "
          "leave learning_rate out, and each follows the schedule from its own",
          learning_rate.value_or(0), text());
  highest_ = learning_rate.value_or(highest_);
}

PARX_INLINE std::string group_rates::text() const {
  std::string all;
  for (const double rate : rates_) all += formatted("{}{}", all.empty() ? "" : ", ", rate);
  return all;
}

}  // namespace parx::train::detail
