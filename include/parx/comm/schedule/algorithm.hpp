// algorithm: the names of the algorithms. catalog.hpp lists which operations have which.
//
// The numbers go over the wire in every call's header: append, never reorder.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

enum class algorithm : std::uint8_t {
  automatic,       ///< the cheapest by price
  ring,            ///< neighbour to neighbour, 1/P of the vector a step
  doubling,        ///< recursive doubling: distance 1, 2, 4, ...
  direct,          ///< every rank with every other
  tree,            ///< binomial tree
  chain,           ///< a pipeline through all ranks
  dissemination,   ///< barrier
  halving,         ///< recursive halving; all_reduce: Rabenseifner's halving and doubling
  bruck,           ///< log2(P) messages for any P
  pairwise,        ///< one partner at a time
  scatter_gather,  ///< van de Geijn's scatter and ring all-gather
  ordered_tree,    ///< a tree over ranks 0, 1, 2, ... whatever the root
  hierarchical,    ///< inside the hosts, then between them
  shared,          ///< in place, in shared buffers
  staged,          ///< copied through shared memory
};

inline constexpr std::array<std::string_view, 15> algorithm_names{
    "automatic",      "ring",          "doubling",     "direct", "tree",
    "chain",          "dissemination", "halving",      "bruck",  "pairwise",
    "scatter_gather", "ordered_tree",  "hierarchical", "shared", "staged"};

[[nodiscard]] constexpr std::string_view name_of(algorithm value) noexcept {
  const auto i = static_cast<std::size_t>(value);
  return i < algorithm_names.size() ? algorithm_names[i] : std::string_view("unknown");
}

struct catalog_entry;
using algorithm_list = std::span<const catalog_entry>;

/// Messages of a rank that are in flight at a time in a windowed algorithm: direct gather, scatter
/// and all_to_all.
inline constexpr int default_window = 16;

/// Most ranks in one barrier through shared memory: each rank polls all others and wakes those that
/// sleep. With more ranks, a dissemination barrier takes fewer steps.
inline constexpr int most_in_host_barrier = 16;

/// Bytes of the largest slice that a staged algorithm copies through shared memory.
inline constexpr std::size_t largest_slice = std::size_t{256} << 10;

/// Bytes of a slice for that many ranks: small enough that the slices of all ranks fit into the
/// cache of a core or two, large enough that the barriers cost little. (8 ranks on 2 cores, 64 MiB:
/// 66 ms with slices of 128 KiB, 114 ms with 256 KiB.)
[[nodiscard]] constexpr std::size_t slice_bytes(int world) noexcept {
  const std::size_t all_ranks = std::size_t{1} << 20;
  const std::size_t smallest = std::size_t{64} << 10;
  return std::clamp(all_ranks / static_cast<std::size_t>(world), smallest, largest_slice);
}

/// Up to this many bytes, of all ranks together, each rank reduces the whole staged vector: reading
/// it costs less than another barrier.
inline constexpr std::size_t most_staged_whole = std::size_t{32} << 10;

}  // namespace parx
