// histogram_exchange: the histograms of some nodes, summed over ranks; each rank gets a block of
// columns.
//
// A rank searches the columns of its block alone, so nobody needs a whole histogram, and a
// reduce_scatter sends half of what an all_reduce does. One message serves all nodes of a call: its
// memory has rank 0's columns of all nodes first, then rank 1's, and so on. Histograms are made in
// that memory, so nothing is copied before it is sent.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/reduce_scatter.hpp>
#include <parx/comm/process_group.hpp>
#include <parx/trees/histogram.hpp>

namespace parx::inline PARX_ABI::trees {

/// The first column of each rank's block, and the number of columns at the end: blocks of about as
/// many cells. A rank may have none. `cell_begin` is bins::cell_begin().
[[nodiscard]] inline std::vector<std::size_t> column_blocks(std::span<const std::size_t> cell_begin,
                                                            int ranks) {
  const auto parts = static_cast<std::size_t>(ranks);
  const std::size_t columns = cell_begin.size() - 1;
  std::vector<std::size_t> first;
  for (std::size_t rank = 0; rank < parts; ++rank) {
    // The first column whose middle is in the rank's part of the cells.
    std::size_t column = first.empty() ? 0 : first.back();
    while (column < columns &&
           (cell_begin[column] + cell_begin[column + 1]) * parts < 2 * rank * cell_begin.back()) {
      ++column;
    }
    first.push_back(column);
  }
  first.push_back(columns);
  return first;
}

class histogram_exchange {
 public:
  histogram_exchange(process_group& group, const bins& data)
      : group_(&group), data_(&data), blocks_(column_blocks(data.cell_begin(), group.size())) {}

  /// The columns of this rank.
  [[nodiscard]] std::size_t first_column() const noexcept { return blocks_[mine()]; }
  [[nodiscard]] std::size_t end_column() const noexcept { return blocks_[mine() + 1]; }
  /// A column's cells among those of this rank's block.
  [[nodiscard]] std::span<const sums> cells_of(std::span<const sums> block,
                                               std::size_t column) const noexcept {
    const auto begin = data_->cell_begin();
    return block.subspan(begin[column] - begin[first_column()], begin[column + 1] - begin[column]);
  }

  /// Collective: one reduce_scatter. For each of the nodes, whose rows on this rank are given, this
  /// rank's block of the histogram of all ranks' rows.
  [[nodiscard]] std::vector<std::vector<sums>> sum(
      const fixed_gradients& gradients, std::span<const std::span<const std::uint32_t>> nodes) {
    memory_.assign(nodes.size() * data_->cells(), sums{});
    std::vector<std::size_t> places(nodes.size() * data_->columns());
    std::vector<histogram_task> tasks;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      std::size_t* const place = places.data() + node * data_->columns();
      fill_places(node, nodes.size(), place);
      tasks.push_back({nodes[node], place});
    }
    add_histograms(*data_, gradients, tasks, memory_);
    const std::size_t cells = block_cells(mine());
    if (group_->size() > 1) {
      std::vector<std::size_t> counts;
      for (std::size_t rank = 0; rank + 1 < blocks_.size(); ++rank) {
        counts.push_back(2 * nodes.size() * block_cells(rank));
      }
      own_.resize(nodes.size() * cells);
      reduce_scatter_v(*group_, integers(memory_), integers(own_), counts);
    }
    const std::vector<sums>& own = group_->size() > 1 ? own_ : memory_;
    std::vector<std::vector<sums>> blocks;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      const auto first = own.begin() + static_cast<std::ptrdiff_t>(node * cells);
      blocks.emplace_back(first, first + static_cast<std::ptrdiff_t>(cells));
    }
    return blocks;
  }

 private:
  [[nodiscard]] std::size_t mine() const noexcept {
    return static_cast<std::size_t>(group_->rank());
  }
  [[nodiscard]] std::size_t block_cells(std::size_t rank) const noexcept {
    return data_->cell_begin()[blocks_[rank + 1]] - data_->cell_begin()[blocks_[rank]];
  }
  [[nodiscard]] static std::span<std::int64_t> integers(std::vector<sums>& cells) noexcept {
    return {reinterpret_cast<std::int64_t*>(cells.data()), cells.size() * 2};
  }
  void fill_places(std::size_t node, std::size_t nodes, std::size_t* place) const {
    const auto begin = data_->cell_begin();
    for (std::size_t rank = 0; rank + 1 < blocks_.size(); ++rank) {
      const std::size_t block = begin[blocks_[rank]];
      const std::size_t of_node = nodes * block + node * block_cells(rank);
      for (std::size_t c = blocks_[rank]; c < blocks_[rank + 1]; ++c) {
        place[c] = of_node + begin[c] - block;
      }
    }
  }

  process_group* group_;
  const bins* data_;
  std::vector<std::size_t> blocks_;
  std::vector<sums> memory_;  ///< of all nodes of a call
  std::vector<sums> own_;     ///< this rank's block of it, of all ranks' rows
};

}  // namespace parx::trees
