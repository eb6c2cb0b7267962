// group_rates: the learning rates of an optimizer's parameter groups under one schedule.
//
// The schedule gives the rate of the group with the highest rate. The other groups keep the ratio
// to it that they started with, as with PyTorch's LambdaLR. Local.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>

namespace parx::inline PARX_ABI::train::detail {

class group_rates {
 public:
  group_rates() = default;
  /// The rates are the optimizer's, or `learning_rate` for all groups if it is given. Throws
  /// usage_error if it is given and the groups have different rates.
  template <typename Optimizer>
  group_rates(const Optimizer& optimizer, std::optional<double> learning_rate) {
    if constexpr (requires { optimizer.group_count(); }) {
      for (std::size_t i = 0; i < optimizer.group_count(); ++i) {
        rates_.push_back(static_cast<double>(optimizer.options(i).lr));
      }
    } else {
      rates_.push_back(static_cast<double>(optimizer.options().lr));
    }
    compare(learning_rate);
  }

  /// The base rate of the schedule.
  [[nodiscard]] double highest() const noexcept { return highest_; }

  /// Sets the rates of all groups in proportion; `rate` is the highest one.
  template <typename Optimizer>
  void set(Optimizer& optimizer, double rate) const {
    if (differ_) {
      if constexpr (requires { optimizer.group_count(); }) {
        for (std::size_t i = 0; i < rates_.size(); ++i) {
          optimizer.options(i).lr = rate * (rates_[i] / highest_);
        }
      }
    } else {
      optimizer.set_lr(rate);
    }
  }

 private:
  void compare(std::optional<double> learning_rate) {
    highest_ = *std::max_element(rates_.begin(), rates_.end());
    differ_ = *std::min_element(rates_.begin(), rates_.end()) < highest_;
    require(!differ_ || !learning_rate,
            "trainer: learning_rate is {}, but the optimizer's groups have rates of their own, {}; "
            "leave learning_rate out, and each follows the schedule from its own",
            learning_rate.value_or(0), text());
    highest_ = learning_rate.value_or(highest_);
  }
  [[nodiscard]] std::string text() const {
    std::string all;
    for (const double rate : rates_) all += formatted("{}{}", all.empty() ? "" : ", ", rate);
    return all;
  }

  std::vector<double> rates_;
  double highest_ = 0;
  bool differ_ = false;
};

}  // namespace parx::train::detail
