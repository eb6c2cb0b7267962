// control_block: what travels ahead of a step's gradients, as numbers that are added up over the
// ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class control_block {
 public:
  explicit control_block(std::size_t parameters) : values_(first_parameter + parameters) {}

  /// Samples of the step.
  [[nodiscard]] double& count() noexcept { return values_[0]; }
  [[nodiscard]] const double& count() const noexcept { return values_[0]; }
  /// Ranks that have raised their flag.
  [[nodiscard]] double& flags() noexcept { return values_[1]; }
  [[nodiscard]] const double& flags() const noexcept { return values_[1]; }
  /// Ranks that have used parameter `i`.
  [[nodiscard]] double& users(std::size_t i) noexcept { return values_[first_parameter + i]; }
  [[nodiscard]] const double& users(std::size_t i) const noexcept {
    return values_[first_parameter + i];
  }

  /// What makes the mean of a sum over all samples; 0 where there are none.
  [[nodiscard]] double factor() const noexcept { return count() == 0 ? 0 : 1 / count(); }

  /// All of it, to be summed in place.
  [[nodiscard]] std::span<double> values() noexcept { return values_; }

 private:
  static constexpr std::size_t first_parameter = 2;

  std::vector<double> values_;
};

}  // namespace parx::detail
