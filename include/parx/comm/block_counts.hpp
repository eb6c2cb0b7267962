// block_counts: the number of elements of each rank, as the _v operations take it.
//
// Any range of integers converts to it, with one entry per rank. Only a contiguous range of
// std::size_t is used without a copy. It refers to its argument: use it as a parameter only.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <type_traits>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

class block_counts {
 public:
  template <typename Counts>
  block_counts(const Counts& counts) {  // NOLINT(google-explicit-constructor)
    constexpr bool are_integers = requires {
      requires std::is_integral_v<std::remove_cvref_t<decltype(*std::begin(counts))>>;
    };
    static_assert(are_integers,
                  "counts are a range of integers, one for each rank: std::vector<int>");
    if constexpr (std::is_convertible_v<const Counts&, std::span<const std::size_t>>) {
      seen_ = counts;
    } else if constexpr (are_integers) {
      for (const auto& each : counts) own_.push_back(static_cast<std::size_t>(each));
      seen_ = own_;
    }
  }
  block_counts(const block_counts&) = delete;
  block_counts& operator=(const block_counts&) = delete;

  [[nodiscard]] std::span<const std::size_t> view() const noexcept { return seen_; }

 private:
  std::vector<std::size_t> own_;
  std::span<const std::size_t> seen_;
};

}  // namespace parx
