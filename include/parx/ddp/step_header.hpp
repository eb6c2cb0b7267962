// step_header: the numbers that are summed over the ranks of a reduction group ahead of a step's
// gradients.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

enum class parameter_use { unused, used, frozen };

class step_header {
 public:
  explicit step_header(std::size_t parameters) : values_(first_parameter + parameters) {}

  /// Samples of the step.
  [[nodiscard]] double& count() noexcept { return values_[0]; }
  [[nodiscard]] const double& count() const noexcept { return values_[0]; }
  /// Ranks that have raised their flag.
  [[nodiscard]] double& flags() noexcept { return values_[1]; }
  [[nodiscard]] const double& flags() const noexcept { return values_[1]; }
  /// The previous step's samples, summed over the ranks; the gradients were divided by it.
  [[nodiscard]] double& last_count() noexcept { return values_[2]; }
  [[nodiscard]] const double& last_count() const noexcept { return values_[2]; }
  /// A number below 2^32 that must be equal on all ranks; after the sum, their sum.
  [[nodiscard]] double& order_hash() noexcept { return values_[3]; }
  [[nodiscard]] const double& order_hash() const noexcept { return values_[3]; }
  /// What this rank has done with parameter `i` of this group.
  void set_use(std::size_t i, parameter_use use) noexcept {
    values_[first_parameter + i] = use == parameter_use::used     ? 1
                                   : use == parameter_use::frozen ? frozen_rank
                                                                  : 0;
  }
  /// After the sum: ranks that have used it, and ranks on which it is frozen.
  [[nodiscard]] double users(std::size_t i) const noexcept {
    return std::floor(values_[first_parameter + i]);
  }
  [[nodiscard]] double frozen_ranks(std::size_t i) const noexcept {
    return (values_[first_parameter + i] - users(i)) / frozen_rank;
  }

  /// The factor from a sum over all samples to their mean; 0 if there are no samples.
  [[nodiscard]] double factor() const noexcept { return count() == 0 ? 0 : 1 / count(); }

  /// All of it, to be summed in place.
  [[nodiscard]] std::span<double> values() noexcept { return values_; }

 private:
  static constexpr std::size_t first_parameter = 4;
  /// Counts beside the users in one number, exactly for up to 2^26 ranks.
  static constexpr double frozen_rank = 0x1p-26;

  std::vector<double> values_;
};

}  // namespace parx::detail
