// algorithm: the names of the ways to do a collective. Which operation has which is in catalog.hpp.
//
// The numbers go over the wire in every call's header: append, never reorder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class algorithm : std::uint8_t {
  automatic,       ///< the cheapest by price
  ring,            ///< neighbour to neighbour, 1/P of the vector a step
  doubling,        ///< recursive doubling: distance 1, 2, 4, ...
  direct,          ///< everybody with everybody
  tree,            ///< binomial tree
  chain,           ///< a pipelined line
  dissemination,   ///< barrier
  halving,         ///< recursive halving; all_reduce: Rabenseifner's halving and doubling
  bruck,           ///< log2(P) messages for any P
  pairwise,        ///< one partner at a time
  scatter_gather,  ///< van de Geijn's scatter and ring all-gather
  ordered_tree,    ///< a tree over ranks 0, 1, 2, ... whatever the root
  hierarchical,    ///< inside the hosts, then between them
  shared,          ///< in place in buffers that all ranks see
  staged,          ///< through memory that all ranks see
};

inline constexpr std::array<std::string_view, 15> algorithm_names{
    "automatic",      "ring",          "doubling",     "direct", "tree",
    "chain",          "dissemination", "halving",      "bruck",  "pairwise",
    "scatter_gather", "ordered_tree",  "hierarchical", "shared", "staged"};

[[nodiscard]] constexpr std::string_view name_of(algorithm value) noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < algorithm_names.size() ? algorithm_names[i] : std::string_view("unknown");
}

/// Messages that a rank has on their way at a time in a windowed algorithm: direct gather, scatter
/// and all_to_all.
inline constexpr int default_window = 16;

/// Ranks that come together by one meeting, where they share memory: each looks for all others, and
/// wakes those who sleep. For more, rounds of signals are fewer steps.
inline constexpr int most_in_host_barrier = 16;

/// Bytes of the largest slice that a staged algorithm passes through memory which all ranks see.
inline constexpr std::size_t largest_slice = std::size_t{256} << 10;

/// Bytes of a slice for that many ranks: so few that the slices of all of them stay in the cache of
/// a core or two, so many that their meetings cost little. (8 ranks on 2 cores, 64 MiB: 66 ms by
/// slices of 128 KiB, 114 by 256.)
[[nodiscard]] constexpr std::size_t slice_bytes(int world) noexcept {
  const std::size_t all_ranks = std::size_t{1} << 20;
  const std::size_t smallest = std::size_t{64} << 10;
  return std::clamp(all_ranks / static_cast<std::size_t>(world), smallest, largest_slice);
}

/// Bytes of all ranks together up to which each rank reduces the whole of what is staged: to read
/// them costs less than to meet once more.
inline constexpr std::size_t most_staged_whole = std::size_t{32} << 10;

}  // namespace parx
