// price: how long an algorithm takes, by formula.
//
// A price is seconds in the alpha-beta-gamma model: alpha per message that must be waited for, beta per
// byte on a link, gamma per byte reduced (Thakur, Rabenseifner and Gropp, 2005). In each formula p is the
// number of ranks and n the bytes of the whole vector.
#pragma once

#include <bit>
#include <cstddef>

namespace parx {

struct link_costs {
  double alpha = 15e-6;    ///< s for a small message between two ranks
  double per_peer = 3e-6;  ///< s of processor time for one more message in flight
  double beta = 0.4e-9;    ///< s per byte
  double gamma = 0.15e-9;  ///< s per byte reduced
};

/// What is taken for ranks that share memory.
inline constexpr link_costs memory_costs{.alpha = 0.4e-6, .per_peer = 0.2e-6, .beta = 0.12e-9, .gamma = 0.08e-9};

namespace prices {

/// Steps of an algorithm that doubles what it reaches in each.
[[nodiscard]] constexpr double log2_ceil(double p) noexcept {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(p) - 1));
}
/// The part of n bytes that is not a rank's own.
[[nodiscard]] constexpr double others(double p, double n) noexcept { return n * (p - 1) / p; }

/// Many large streams into one host get in each other's way (incast).
[[nodiscard]] constexpr double crowd(double p) noexcept { return p > 2 ? 1.2 : 1.0; }

[[nodiscard]] constexpr double ring_all_reduce(double p, double n, const link_costs& c) noexcept {
  return 2 * (p - 1) * c.alpha + others(p, n) * (2 * c.beta + c.gamma);
}
[[nodiscard]] constexpr double doubling_all_reduce(double p, double n, const link_costs& c) noexcept {
  const double fold = std::has_single_bit(static_cast<unsigned>(p)) ? 0 : 1;
  return (log2_ceil(p) + fold) * (c.alpha + n * (c.beta + c.gamma));
}

[[nodiscard]] constexpr double ring_all_gather(double p, double n, const link_costs& c) noexcept {
  return (p - 1) * c.alpha + others(p, n) * c.beta;
}
[[nodiscard]] constexpr double direct_all_gather(double p, double n, const link_costs& c) noexcept {
  return c.alpha + (p - 1) * c.per_peer + crowd(p) * others(p, n) * c.beta;
}
[[nodiscard]] constexpr double ring_reduce_scatter(double p, double n, const link_costs& c) noexcept {
  return ring_all_gather(p, n, c) + others(p, n) * c.gamma;
}
[[nodiscard]] constexpr double direct_reduce_scatter(double p, double n, const link_costs& c) noexcept {
  return direct_all_gather(p, n, c) + others(p, n) * c.gamma;
}

[[nodiscard]] constexpr double tree_broadcast(double p, double n, const link_costs& c) noexcept {
  return log2_ceil(p) * (c.alpha + n * c.beta);
}
[[nodiscard]] constexpr double chain_broadcast(double p, double n, const link_costs& c) noexcept {
  return (p - 1) * c.alpha + n * c.beta;
}
[[nodiscard]] constexpr double tree_reduce(double p, double n, const link_costs& c) noexcept {
  return log2_ceil(p) * (c.alpha + n * (c.beta + c.gamma));
}
[[nodiscard]] constexpr double chain_reduce(double p, double n, const link_costs& c) noexcept {
  return (p - 1) * c.alpha + n * (c.beta + c.gamma);
}

/// In shared buffers: two barriers around a pass over this rank's part of all buffers.
[[nodiscard]] constexpr double shared_all_reduce(double p, double n, const link_costs& c) noexcept {
  return 2 * log2_ceil(p) * c.alpha + 2 * n * c.gamma;
}
[[nodiscard]] constexpr double shared_reduce_scatter(double p, double n, const link_costs& c) noexcept {
  return 2 * log2_ceil(p) * c.alpha + n * c.gamma;
}
[[nodiscard]] constexpr double shared_all_gather(double p, double n, const link_costs& c) noexcept {
  return 2 * log2_ceil(p) * c.alpha + others(p, n) * c.gamma;
}
[[nodiscard]] constexpr double shared_broadcast(double p, double n, const link_costs& c) noexcept {
  return 2 * log2_ceil(p) * c.alpha + n * c.gamma;
}

[[nodiscard]] constexpr double dissemination_barrier(double p, double, const link_costs& c) noexcept {
  return log2_ceil(p) * c.alpha;
}

}  // namespace prices
}  // namespace parx
