// call_shape: all that an algorithm, its price and its choice depend on. No buffers, no types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <parx/comm/schedule/operation.hpp>
#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/reduction_order.hpp>

namespace parx::inline PARX_ABI {

struct call_shape {
  operation what = operation::barrier;
  int rank = 0;
  int world = 1;
  /// Elements of the whole vector: what all_reduce, broadcast, reduce and the scans have on each
  /// rank; all blocks of reduce_scatter, all_gather, gather and scatter; what this rank sends in
  /// all_to_all.
  std::size_t count = 0;
  int root = 0;
  std::size_t element_bytes = 1;
  reduction_order order = reduction_order::any;
  /// Those elements in one block a rank; left empty it is an even cut of `count`. In all_to_all it
  /// is what goes to each rank.
  partition blocks{};
  /// all_to_all with uneven blocks: what comes from each rank.
  partition incoming{};
  /// Whether the buffers lie in shared areas, at the same offset on all ranks.
  bool shared_input = false;
  bool shared_output = false;
  /// For staged algorithms: bytes of a slice that passes through memory which all ranks see; 0
  /// where there is none.
  std::size_t staging_bytes = 0;
  /// The host of each rank, numbered 0, 1, 2, ... in any order, for hierarchical algorithms; empty
  /// where that is unknown. Borrowed.
  std::span<const int> host_of{};

  [[nodiscard]] partition cut() const {
    return blocks.parts() == 0 ? partition::even(count, world) : blocks;
  }
  /// all_to_all: what comes in, where every rank cuts alike if nothing else is said.
  [[nodiscard]] partition arriving() const {
    return incoming.parts() != 0
               ? incoming
               : partition::even(cut().count(rank) * static_cast<std::size_t>(world), world);
  }
  /// Elements of a slice that is staged; 0 where none can be.
  [[nodiscard]] std::size_t slice_count() const noexcept { return staging_bytes / element_bytes; }
  /// Whether it is so short that each rank reduces all of what is staged.
  [[nodiscard]] bool is_staged_whole() const noexcept {
    return count <= slice_count() &&
           count * element_bytes * static_cast<std::size_t>(world) <= most_staged_whole;
  }
  /// 0 where host_of is unknown.
  [[nodiscard]] int hosts() const noexcept {
    return host_of.empty() ? 0 : 1 + *std::max_element(host_of.begin(), host_of.end());
  }
  /// Bytes by which the algorithms are compared: equal on all ranks, as the choice must be. What
  /// one rank sends in an uneven all_to_all is not known to the others, so it counts for nothing.
  [[nodiscard]] double bytes() const noexcept {
    if (what == operation::all_to_all && incoming.parts() != 0) return 0;
    const std::size_t elements = blocks.parts() == 0 ? count : blocks.total();
    return static_cast<double>(elements) * static_cast<double>(element_bytes);
  }
};

}  // namespace parx
