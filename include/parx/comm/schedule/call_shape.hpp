// call_shape: what an algorithm, its price and its choice depend on, without buffers and types.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <parx/comm/schedule/operation.hpp>
#include <parx/comm/schedule/partition.hpp>
#include <parx/comm/schedule/reduction_order.hpp>

namespace parx::inline PARX_ABI {

/// Which buffers lie in shared areas, at the same offset on all ranks.
enum class shared_buffers : std::uint8_t { none = 0, input = 1, output = 2, both = 3 };

struct call_shape {
  operation what = operation::barrier;
  int rank = 0;
  int world = 1;
  /// Elements of the whole vector: each rank's vector in all_reduce, broadcast, reduce and the
  /// scans; all blocks of reduce_scatter, all_gather, gather and scatter; all that this rank sends
  /// in all_to_all.
  std::size_t count = 0;
  int root = 0;
  std::size_t element_bytes = 1;
  reduction_order order = reduction_order::any;
  /// Those elements in one block per rank; if empty, `count` is cut evenly. In all_to_all: the
  /// block sent to each rank.
  partition blocks{};
  /// all_to_all with uneven blocks: the block received from each rank.
  partition incoming{};
  shared_buffers shared = shared_buffers::none;
  bool separate_blocks = false;  ///< the output's blocks do not lie one behind the other
  /// For staged algorithms: bytes of a slice; 0 if the ranks do not share memory.
  std::size_t staging_bytes = 0;
  /// For hierarchical algorithms: the host of each rank, numbered 0, 1, 2, ... in any order; empty
  /// if unknown. Borrowed.
  std::span<const int> host_of{};

  /// Whether a plan for `other`, a call of the same group, serves this one, if their blocks are
  /// equal as well.
  [[nodiscard]] bool is_like(const call_shape& other) const noexcept {
    return what == other.what && count == other.count && root == other.root &&
           element_bytes == other.element_bytes && order == other.order && shared == other.shared &&
           separate_blocks == other.separate_blocks;
  }
  [[nodiscard]] bool shares(shared_buffers which) const noexcept {
    return (static_cast<int>(shared) & static_cast<int>(which)) == static_cast<int>(which);
  }
  [[nodiscard]] partition cut() const {
    return blocks.parts() == 0 ? partition::even(count, world) : blocks;
  }
  /// all_to_all: the received blocks; by default all ranks cut alike.
  [[nodiscard]] partition arriving() const {
    return incoming.parts() != 0
               ? incoming
               : partition::even(cut().count(rank) * static_cast<std::size_t>(world), world);
  }
  /// Elements of a staged slice; 0 if staging is not possible.
  [[nodiscard]] std::size_t slice_count() const noexcept { return staging_bytes / element_bytes; }
  /// Whether the vector is so short that each rank reduces the whole of it when staged.
  [[nodiscard]] bool is_staged_whole() const noexcept {
    return count <= slice_count() &&
           count * element_bytes * static_cast<std::size_t>(world) <= most_staged_whole;
  }
  /// Number of hosts; 0 if unknown.
  [[nodiscard]] int hosts() const noexcept {
    return host_of.empty() ? 0 : 1 + *std::max_element(host_of.begin(), host_of.end());
  }
  /// The size by which algorithms are compared. It must be equal on all ranks, as the choice must
  /// be; so it is 0 for an uneven all_to_all, where ranks do not know what the others send.
  [[nodiscard]] double bytes() const noexcept {
    if (what == operation::all_to_all && incoming.parts() != 0) return 0;
    const std::size_t elements = blocks.parts() == 0 ? count : blocks.total();
    return static_cast<double>(elements) * static_cast<double>(element_bytes);
  }
};

}  // namespace parx
