// control_block: the numbers that are summed over the ranks of a reduction group ahead of a step's
// gradients.
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
  /// Samples of the previous step on all ranks that share the data, by which each rank has divided.
  [[nodiscard]] double& last_count() noexcept { return values_[2]; }
  [[nodiscard]] const double& last_count() const noexcept { return values_[2]; }
  /// A number below 2^32 that must be equal on all ranks; after the sum, their sum.
  [[nodiscard]] double& order_hash() noexcept { return values_[3]; }
  [[nodiscard]] const double& order_hash() const noexcept { return values_[3]; }
  /// Ranks that have used parameter `i` of this group.
  [[nodiscard]] double& users(std::size_t i) noexcept { return values_[first_parameter + i]; }
  [[nodiscard]] const double& users(std::size_t i) const noexcept {
    return values_[first_parameter + i];
  }

  /// The factor from a sum over all samples to their mean; 0 if there are no samples.
  [[nodiscard]] double factor() const noexcept { return count() == 0 ? 0 : 1 / count(); }

  /// All of it, to be summed in place.
  [[nodiscard]] std::span<double> values() noexcept { return values_; }

 private:
  static constexpr std::size_t first_parameter = 4;

  std::vector<double> values_;
};

}  // namespace parx::detail
