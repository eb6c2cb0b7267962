// select: which algorithm an operation uses, by price.
//
// A price is seconds in the alpha-beta-gamma model: alpha per message that must be waited for, beta per
// byte on a link, gamma per byte reduced (Thakur, Rabenseifner and Gropp, 2005). The inputs are equal on
// all ranks, so the choice is; a rank that chose differently would be found out by the header.
#pragma once

#include <bit>
#include <cstddef>

#include <parx/comm/schedule/action.hpp>

namespace parx {

struct link_costs {
  double alpha = 15e-6;    ///< s for a small message between two ranks
  double per_peer = 3e-6;  ///< s of processor time for one more message in flight
  double beta = 0.4e-9;    ///< s per byte
  double gamma = 0.15e-9;  ///< s per byte reduced
};

namespace schedules {

[[nodiscard]] constexpr double log2_ceil(int world) noexcept {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(world - 1)));
}

/// `bytes` is one rank's vector. Seconds.
[[nodiscard]] constexpr double price_all_reduce(algorithm use, int world, std::size_t bytes,
                                                const link_costs& cost) noexcept {
  const double n = static_cast<double>(bytes);
  const double p = world;
  if (use == algorithm::ring) {
    return 2 * (p - 1) * cost.alpha + 2 * n * (p - 1) / p * cost.beta + n * (p - 1) / p * cost.gamma;
  }
  const double fold = std::has_single_bit(static_cast<unsigned>(world)) ? 0 : 1;
  return (log2_ceil(world) + fold) * (cost.alpha + n * cost.beta + n * cost.gamma);
}

/// For all_gather and reduce_scatter; `bytes` is the whole vector. Seconds.
[[nodiscard]] constexpr double price_scattered(algorithm use, int world, std::size_t bytes,
                                               const link_costs& cost) noexcept {
  const double moved = static_cast<double>(bytes) * (world - 1) / world;
  if (use == algorithm::ring) return (world - 1) * cost.alpha + moved * cost.beta;
  // Many large streams into one host get in each other's way (incast).
  const double crowd = world > 2 ? 1.2 : 1.0;
  return cost.alpha + (world - 1) * cost.per_peer + crowd * moved * cost.beta;
}

/// For broadcast and reduce. Seconds.
[[nodiscard]] constexpr double price_rooted(algorithm use, int world, std::size_t bytes,
                                            const link_costs& cost) noexcept {
  const double n = static_cast<double>(bytes);
  if (use == algorithm::chain) return (world - 1) * cost.alpha + n * cost.beta;
  return log2_ceil(world) * (cost.alpha + n * cost.beta);
}

[[nodiscard]] constexpr algorithm select_all_reduce(int world, std::size_t bytes,
                                                    const link_costs& cost = {}) noexcept {
  return price_all_reduce(algorithm::doubling, world, bytes, cost) <=
                 price_all_reduce(algorithm::ring, world, bytes, cost)
             ? algorithm::doubling
             : algorithm::ring;
}
[[nodiscard]] constexpr algorithm select_scattered(int world, std::size_t bytes,
                                                   const link_costs& cost = {}) noexcept {
  return price_scattered(algorithm::direct, world, bytes, cost) <=
                 price_scattered(algorithm::ring, world, bytes, cost)
             ? algorithm::direct
             : algorithm::ring;
}
[[nodiscard]] constexpr algorithm select_rooted(int world, std::size_t bytes,
                                                const link_costs& cost = {}) noexcept {
  return price_rooted(algorithm::tree, world, bytes, cost) <=
                 price_rooted(algorithm::chain, world, bytes, cost)
             ? algorithm::tree
             : algorithm::chain;
}

}  // namespace schedules
}  // namespace parx
