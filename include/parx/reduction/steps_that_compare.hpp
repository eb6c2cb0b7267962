// steps_that_compare: in which steps ranks compare what has to be alike: in the first ones, where
// mistakes show, and then from time to time.
#pragma once

#include <bit>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Counts steps and says which of them compare: the same on all ranks.
class steps_that_compare {
 public:
  [[nodiscard]] bool is_next() noexcept {
    ++steps_;
    return std::has_single_bit(steps_) || steps_ % 128 == 0;
  }

  /// So far, with the present one.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  std::uint64_t steps_ = 0;
};

}  // namespace parx
