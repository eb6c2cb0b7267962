// reduction_times: the time that backward passes spend on communication.
#pragma once

#include <algorithm>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// Of the backward passes so far, on this rank.
struct reduction_times {
  double communication = 0;  ///< seconds in which sums of gradients were in flight
  double waited = 0;         ///< seconds of these in which nothing was left to compute

  /// The fraction of the communication that computation hid; 1 if there was none.
  [[nodiscard]] double hidden() const noexcept {
    return communication > 0 ? std::clamp(1 - waited / communication, 0.0, 1.0) : 1;
  }
  [[nodiscard]] friend reduction_times operator-(reduction_times after,
                                                 const reduction_times& before) noexcept {
    return {after.communication - before.communication, after.waited - before.waited};
  }
};

}  // namespace parx
