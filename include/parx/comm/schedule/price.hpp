// price: formulas for the time that an algorithm takes.
//
// A price is seconds in the alpha-beta-gamma model: alpha per message that must be waited for, beta
// per byte on a link, gamma per byte reduced (Thakur, Rabenseifner and Gropp, 2005). Flat
// algorithms are priced as if every link crossed the network.
#pragma once

#include <algorithm>
#include <bit>

#include <parx/comm/schedule/algorithm.hpp>

namespace parx::inline PARX_ABI {

struct link_costs {
  double alpha = 15e-6;          ///< s for a small message between two ranks
  double per_peer = 3e-6;        ///< s of processor time for one more message in flight
  double beta = 0.4e-9;          ///< s per byte
  double gamma = 0.15e-9;        ///< s per byte reduced
  double crowding = 1.2;         ///< how much slower large crossing streams are; grows with log2(P)
  double local_alpha = 2e-6;     ///< alpha between two ranks of one host
  double local_beta = 0.15e-9;   ///< beta between two ranks of one host
};

/// Assumed for ranks that share memory.
inline constexpr link_costs memory_costs{.alpha = 2.5e-6, .per_peer = 0.3e-6, .beta = 0.12e-9,
                                         .gamma = 0.08e-9, .crowding = 1, .local_alpha = 2.5e-6,
                                         .local_beta = 0.12e-9};

/// Assumed for ranks of one host that communicate over TCP: fitted to 4 and 8 ranks on two cores,
/// where processor time is scarce and each message in flight costs some. The cost per byte does not
/// depend on the receiver.
inline constexpr link_costs loopback_costs{
    .alpha = 12e-6, .per_peer = 6e-6, .beta = 0.35e-9, .gamma = 0.15e-9, .crowding = 1.03};

namespace prices {

/// A call: p ranks on `hosts` hosts (0 if unknown) and a vector of n bytes.
struct load {
  double p;
  double n;
  double hosts = 0;
};

/// The number of steps of an algorithm that doubles in each step.
[[nodiscard]] constexpr double log2_ceil(double p) noexcept {
  return static_cast<double>(std::bit_width(static_cast<unsigned>(p) - 1));
}
[[nodiscard]] constexpr bool is_power_of_two(double p) noexcept {
  return std::has_single_bit(static_cast<unsigned>(p));
}
/// The part of n bytes that is not a rank's own.
[[nodiscard]] constexpr double others(const load& w) noexcept { return w.n * (w.p - 1) / w.p; }

/// Slowdown by congestion: many large streams into one host (incast), or the pairs of a recursive
/// algorithm, which all cross the middle of the network at once.
[[nodiscard]] constexpr double crowd(const load& w, const link_costs& c) noexcept {
  return w.p > 2 ? 1 + (c.crowding - 1) * (log2_ceil(w.p) - 1) : 1.0;
}

/// The same load among the leaders of the hosts; and the number of ranks per host if all are alike.
[[nodiscard]] constexpr load among_leaders(const load& w) noexcept { return {w.hosts, w.n}; }
[[nodiscard]] constexpr double ranks_a_host(const load& w) noexcept {
  return static_cast<double>((static_cast<long>(w.p) + static_cast<long>(w.hosts) - 1) /
                             static_cast<long>(w.hosts));
}
/// A binomial tree inside a host, without arithmetic.
[[nodiscard]] constexpr double local_tree(const load& w, const link_costs& c) noexcept {
  return log2_ceil(ranks_a_host(w)) * (c.local_alpha + w.n * c.local_beta);
}

// all_reduce
[[nodiscard]] constexpr double doubling_all_reduce(const load& w, const link_costs& c) noexcept {
  const double fold = is_power_of_two(w.p) ? 0 : 1;
  return (log2_ceil(w.p) + fold) * (c.alpha + w.n * (crowd(w, c) * c.beta + c.gamma));
}
[[nodiscard]] constexpr double ring_all_reduce(const load& w, const link_costs& c) noexcept {
  return 2 * (w.p - 1) * c.alpha + others(w) * (2 * c.beta + c.gamma);
}
[[nodiscard]] constexpr double halving_all_reduce(const load& w, const link_costs& c) noexcept {
  const load inner{std::bit_floor(static_cast<unsigned>(w.p)) * 1.0, w.n};
  const double fold =
      is_power_of_two(w.p) ? 0 : 2 * c.alpha + 2 * w.n * c.beta + w.n * c.gamma;
  return fold + 2 * log2_ceil(inner.p) * c.alpha +
         others(inner) * (2 * crowd(w, c) * c.beta + c.gamma);
}
[[nodiscard]] constexpr double tree_all_reduce(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * (2 * (c.alpha + w.n * c.beta) + w.n * c.gamma);
}
[[nodiscard]] constexpr double hierarchical_all_reduce(const load& w,
                                                       const link_costs& c) noexcept {
  return 2 * local_tree(w, c) + log2_ceil(ranks_a_host(w)) * w.n * c.gamma +
         halving_all_reduce(among_leaders(w), c);
}

/// Up the line and down again. Ranks of one host share its processors, so the work of all ranks
/// together counts: few messages, as many bytes as in a ring, but each rank waits for the one
/// before it. (Fitted to 3 to 8 ranks on two cores, over TCP: faster than direct up to 128 KiB at 4
/// ranks, never faster than doubling.)
[[nodiscard]] constexpr double chain_all_reduce(const load& w, const link_costs& c) noexcept {
  if (w.hosts == 1) {
    return 2 * log2_ceil(w.p) * c.alpha + others(w) * (2.9 * c.beta + c.gamma);
  }
  return 2 * (w.p - 1) * c.alpha + w.n * (2 * c.beta + c.gamma);
}
/// Rank 0 receives the vectors of all other ranks.
[[nodiscard]] constexpr double ordered_tree_all_reduce(const load& w,
                                                       const link_costs& c) noexcept {
  return 2 * log2_ceil(w.p) * c.alpha +
         w.n * ((w.p - 1) * (c.beta + c.gamma) + log2_ceil(w.p) * c.beta);
}

// all_gather
[[nodiscard]] constexpr double direct_all_gather(const load& w, const link_costs& c) noexcept {
  return c.alpha + (w.p - 1) * c.per_peer + crowd(w, c) * others(w) * c.beta;
}
[[nodiscard]] constexpr double doubling_all_gather(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * c.alpha + crowd(w, c) * others(w) * c.beta;
}
/// A run that wraps around the end of the vector is a second message.
[[nodiscard]] constexpr double bruck_all_gather(const load& w, const link_costs& c) noexcept {
  return doubling_all_gather(w, c) + log2_ceil(w.p) * c.per_peer;
}
[[nodiscard]] constexpr double ring_all_gather(const load& w, const link_costs& c) noexcept {
  return (w.p - 1) * c.alpha + others(w) * c.beta;
}
[[nodiscard]] constexpr double hierarchical_all_gather(const load& w,
                                                       const link_costs& c) noexcept {
  return 2 * c.local_alpha + ranks_a_host(w) * (c.local_alpha + c.per_peer) +
         w.n * c.local_beta + ring_all_gather(among_leaders(w), c);
}

// reduce_scatter
/// Received bytes are staged, then reduced in rank order.
[[nodiscard]] constexpr double direct_reduce_scatter(const load& w, const link_costs& c) noexcept {
  return direct_all_gather(w, c) + (w.p - 1) * c.per_peer + others(w) * c.gamma;
}
[[nodiscard]] constexpr double direct_all_reduce(const load& w, const link_costs& c) noexcept {
  return direct_reduce_scatter(w, c) + direct_all_gather(w, c);
}
[[nodiscard]] constexpr double halving_reduce_scatter(const load& w, const link_costs& c) noexcept {
  const load inner{std::bit_floor(static_cast<unsigned>(w.p)) * 1.0, w.n};
  const double fold = is_power_of_two(w.p) ? 0 : 2 * c.alpha + w.n * (c.beta + c.gamma);
  return fold + doubling_all_gather(inner, c) + others(inner) * c.gamma;
}
[[nodiscard]] constexpr double ring_reduce_scatter(const load& w, const link_costs& c) noexcept {
  return ring_all_gather(w, c) + others(w) * c.gamma;
}

/// On the way down a rank forwards what it has received as a whole: half of the vector on average.
/// (Inside a host fitted as chain_all_reduce: from 64 KiB on, twice the time of direct.)
[[nodiscard]] constexpr double chain_reduce_scatter(const load& w, const link_costs& c) noexcept {
  if (w.hosts == 1) return (w.p - 1) * c.alpha + others(w) * (3 * c.beta + c.gamma);
  return 2 * (w.p - 1) * c.alpha + w.n * ((1 + (w.p - 1) / 2) * c.beta + c.gamma);
}

// broadcast
[[nodiscard]] constexpr double tree_broadcast(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * (c.alpha + w.n * c.beta);
}
[[nodiscard]] constexpr double chain_broadcast(const load& w, const link_costs& c) noexcept {
  return (w.p - 1) * c.alpha + w.n * c.beta;
}
[[nodiscard]] constexpr double scatter_gather_broadcast(const load& w,
                                                        const link_costs& c) noexcept {
  return (log2_ceil(w.p) + w.p - 1) * c.alpha + 2 * others(w) * c.beta;
}
[[nodiscard]] constexpr double hierarchical_broadcast(const load& w, const link_costs& c) noexcept {
  return tree_broadcast(among_leaders(w), c) + local_tree(w, c);
}

// reduce
[[nodiscard]] constexpr double tree_reduce(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * (c.alpha + w.n * (c.beta + c.gamma));
}
[[nodiscard]] constexpr double chain_reduce(const load& w, const link_costs& c) noexcept {
  return (w.p - 1) * c.alpha + w.n * (c.beta + c.gamma);
}
/// All streams enter one host at once.
[[nodiscard]] constexpr double direct_reduce(const load& w, const link_costs& c) noexcept {
  return c.alpha + (w.p - 1) * (c.per_peer + w.n * (crowd(w, c) * c.beta + c.gamma));
}
[[nodiscard]] constexpr double ordered_tree_reduce(const load& w, const link_costs& c) noexcept {
  return tree_reduce(w, c) + c.alpha + w.n * c.beta;
}

// gather and scatter. An inner rank of the tree receives and sends its subtree's blocks.
[[nodiscard]] constexpr double tree_blocks(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * c.alpha + 1.5 * others(w) * c.beta;
}
/// In a gather, the root sends a request for every window of ranks but the first.
[[nodiscard]] constexpr double direct_blocks(const load& w, const link_costs& c) noexcept {
  return (1 + std::max(0.0, (w.p - 2) / default_window)) * c.alpha + (w.p - 1) * c.per_peer +
         others(w) * c.beta;
}

// all_to_all
[[nodiscard]] constexpr double direct_all_to_all(const load& w, const link_costs& c) noexcept {
  return std::max(1.0, w.p / default_window) * c.alpha + (w.p - 1) * c.per_peer +
         crowd(w, c) * others(w) * c.beta;
}
[[nodiscard]] constexpr double pairwise_all_to_all(const load& w, const link_costs& c) noexcept {
  return (w.p - 1) * c.alpha + others(w) * c.beta;
}
/// Packing reads and writes the data that is sent; it costs about as much as a reduction.
[[nodiscard]] constexpr double bruck_all_to_all(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * (c.alpha + w.n / 2 * (c.beta + c.gamma));
}

// scan and exscan
[[nodiscard]] constexpr double doubling_scan(const load& w, const link_costs& c) noexcept {
  return tree_reduce(w, c);
}
[[nodiscard]] constexpr double chain_scan(const load& w, const link_costs& c) noexcept {
  return chain_reduce(w, c);
}
[[nodiscard]] constexpr double doubling_exscan(const load& w, const link_costs& c) noexcept {
  return doubling_scan(w, c) + c.alpha + w.n * c.beta;
}
[[nodiscard]] constexpr double chain_exscan(const load& w, const link_costs& c) noexcept {
  return chain_scan(w, c) + c.alpha + w.n * c.beta;
}

/// Steps of a barrier of ranks that share memory: one, or rounds of signals if they are many.
[[nodiscard]] constexpr double host_barrier_rounds(const load& w) noexcept {
  const double rounds = log2_ceil(w.p);
  return w.p <= most_in_host_barrier ? std::min(1.0, rounds) : rounds;
}

/// Through staging memory: one barrier per slice and one more, a copy in and out, and a pass over
/// all ranks' slices. A short vector: one barrier, and each rank reduces all ranks' vectors.
[[nodiscard]] constexpr double staged_all_reduce(const load& w, const link_costs& c) noexcept {
  const double barrier = host_barrier_rounds(w) * c.alpha;
  if (w.n * w.p <= static_cast<double>(most_staged_whole)) {
    return 1.15 * barrier + 1.25 * w.n * w.p * c.gamma;
  }
  const auto slice = static_cast<double>(slice_bytes(static_cast<int>(w.p)));
  const double slices = std::max(1.0, w.n / slice);
  return 1.2 * (slices + 1) * barrier + (0.8 * w.n + 1.4 * others(w)) * c.gamma;
}

/// In shared buffers: two barriers around a pass over this rank's part of all buffers. Measured
/// with two ranks: about the time of reducing the vector once, and both barriers take little more
/// than one message; with more ranks, each barrier takes the time of a message.
[[nodiscard]] constexpr double two_host_barriers(const load& w, const link_costs& c) noexcept {
  return (w.p > 2 ? 2 : 1.14) * host_barrier_rounds(w) * c.alpha;
}
[[nodiscard]] constexpr double shared_all_reduce(const load& w, const link_costs& c) noexcept {
  return two_host_barriers(w, c) + 1.2 * w.n * c.gamma;
}
[[nodiscard]] constexpr double shared_reduce_scatter(const load& w, const link_costs& c) noexcept {
  return two_host_barriers(w, c) + 0.6 * w.n * c.gamma;
}
[[nodiscard]] constexpr double shared_all_gather(const load& w, const link_costs& c) noexcept {
  return two_host_barriers(w, c) + others(w) * c.gamma;
}
/// In a barrier each rank waits for all, in a tree only for its parent. (Successive calls on two
/// cores. 2 ranks: 1 KiB takes 0.34 us with barriers and 0.28 us by a tree, 4 KiB 0.36 and 0.60 us.
/// 4 ranks: 4 KiB takes 6.1 and 1.4 us, 16 KiB 6.5 and 9.0 us.)
[[nodiscard]] constexpr double shared_broadcast(const load& w, const link_costs& c) noexcept {
  return std::min(1.04 * (w.p - 1), 1.5 * log2_ceil(w.p)) * c.alpha + w.n * c.gamma;
}

// barrier
[[nodiscard]] constexpr double dissemination_barrier(const load& w, const link_costs& c) noexcept {
  return log2_ceil(w.p) * c.alpha;
}

}  // namespace prices
}  // namespace parx
