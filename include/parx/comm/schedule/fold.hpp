// fold: reduces any number of ranks to a power of two, for algorithms that pair ranks by a bit.
//
// The first 2 (P - 2^k) ranks form pairs: the even rank sits out; the odd one, its proxy, receives
// its input before and sends it the result after. The remaining 2^k ranks get positions in rank
// order, so an algorithm that combines neighbouring positions keeps the order of the ranks.
#pragma once

#include <bit>

#include <parx/comm/schedule/action.hpp>

namespace parx::inline PARX_ABI::algorithms {

struct fold {
  int power;  ///< positions: the largest power of two <= world
  int extra;  ///< number of pairs

  explicit constexpr fold(int world) noexcept
      : power(static_cast<int>(std::bit_floor(static_cast<unsigned>(world)))),
        extra(world - power) {}

  [[nodiscard]] constexpr bool sits_out(int rank) const noexcept {
    return rank < 2 * extra && rank % 2 == 0;
  }
  [[nodiscard]] constexpr bool is_proxy(int rank) const noexcept {
    return rank < 2 * extra && rank % 2 == 1;
  }
  /// The position of a rank that does not sit out.
  [[nodiscard]] constexpr int position(int rank) const noexcept {
    return rank < 2 * extra ? rank / 2 : rank - extra;
  }
  /// The rank at a position.
  [[nodiscard]] constexpr int rank_at(int position) const noexcept {
    return position < extra ? 2 * position + 1 : position + extra;
  }
  /// The lowest rank that a position stands for: position p has ranks first(p) to first(p + 1) - 1.
  [[nodiscard]] constexpr int first(int position) const noexcept {
    return position < extra ? 2 * position : position + extra;
  }
};

}  // namespace parx::algorithms
