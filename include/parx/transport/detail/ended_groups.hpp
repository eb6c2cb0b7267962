// ended_groups: the latest groups that have ended, for which nothing is accepted any more. A peer
// lags behind by a few of them, not by hundreds.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

class ended_groups {
 public:
  void add(std::uint64_t group) noexcept { groups_[count_++ % groups_.size()] = group; }
  [[nodiscard]] bool has(std::uint64_t group) const noexcept {
    const auto known =
        groups_.begin() + static_cast<std::ptrdiff_t>(std::min(count_, groups_.size()));
    return std::find(groups_.begin(), known, group) != known;
  }

 private:
  std::array<std::uint64_t, 512> groups_{};
  std::size_t count_ = 0;
};

}  // namespace parx::detail
