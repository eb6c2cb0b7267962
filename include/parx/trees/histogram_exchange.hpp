// histogram_exchange: the histograms of some nodes, summed over ranks; each rank gets a block of
// columns.
//
// A rank searches the columns of its block alone, so nobody needs a whole histogram, and a
// reduce_scatter sends half of what an all_reduce does. One message serves all nodes of a call: its
// memory has rank 0's columns of all nodes first, then rank 1's, and so on. Histograms are made in
// that memory, so nothing is copied before it is sent. Sums of quantised gradients are sent in 16
// or 32 bits where the rows are few enough for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_reduce.hpp>
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

/// Of a cell whose sums of g and h lie between -most and most: 4, 8 or 16.
[[nodiscard]] constexpr int bytes_of_cell(std::int64_t most) noexcept {
  return most <= std::numeric_limits<std::int16_t>::max()   ? 4
         : most <= std::numeric_limits<std::int32_t>::max() ? 8
                                                            : 16;
}

/// Collective where gradients are quantised: one all_reduce of 8 bytes. What no sum of the rows of
/// one of the nodes exceeds, on all ranks together; `nodes` are this rank's rows of each.
[[nodiscard]] inline std::int64_t most_of_sums(
    process_group& group, const fixed_gradients& gradients,
    std::span<const std::span<const std::uint32_t>> nodes) {
  if (gradients.quant_bins == 0) return std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 1> rows{0};  // the sum of the ranks' most is no less than the most
  for (const auto& each : nodes) rows[0] = std::max(rows[0], std::int64_t(each.size()));
  all_reduce(group, rows);
  return rows[0] * gradients.quant_bins;
}

/// Collective: one reduce_scatter, in integers that hold `most`. Of the sums of all ranks' `cells`,
/// rank r gets the block of counts[r], in their order; `own` is overwritten with this rank's.
inline void scatter_sums(process_group& group, std::span<const sums> cells,
                         std::span<const std::size_t> counts, std::int64_t most,
                         std::vector<sums>& own) {
  own.resize(counts[static_cast<std::size_t>(group.rank())]);
  std::vector<std::size_t> twice;
  for (const std::size_t count : counts) twice.push_back(2 * count);
  const std::span from(reinterpret_cast<const std::int64_t*>(cells.data()), 2 * cells.size());
  const std::span to(reinterpret_cast<std::int64_t*>(own.data()), 2 * own.size());
  const auto send_as = [&]<typename Integer>(Integer) {
    std::vector<Integer> sent(from.size());
    std::transform(from.begin(), from.end(), sent.begin(),
                   [](std::int64_t sum) { return static_cast<Integer>(sum); });
    std::vector<Integer> received(to.size());
    reduce_scatter_v(group, sent, received, twice);
    std::copy(received.begin(), received.end(), to.begin());
  };
  switch (bytes_of_cell(most)) {
    case 4:
      return send_as(std::int16_t{});
    case 8:
      return send_as(std::int32_t{});
    default:
      reduce_scatter_v(group, from, to, twice);
  }
}

class histogram_exchange {
 public:
  /// The columns are dealt out to `ranks`: all of the group; or 1, where every rank keeps the
  /// histograms of its own rows, of all columns.
  histogram_exchange(process_group& group, const bins& data, int ranks)
      : group_(&group), data_(&data), blocks_(column_blocks(data.cell_begin(), ranks)) {}

  /// The columns of this rank.
  [[nodiscard]] std::size_t first_column() const noexcept { return blocks_[mine()]; }
  [[nodiscard]] std::size_t end_column() const noexcept { return blocks_[mine() + 1]; }
  /// A column's cells among those of this rank's block.
  [[nodiscard]] std::span<const sums> cells_of(std::span<const sums> block,
                                               std::size_t column) const noexcept {
    const auto begin = data_->cell_begin();
    return block.subspan(begin[column] - begin[first_column()], begin[column + 1] - begin[column]);
  }

  /// Collective where columns are dealt out: one reduce_scatter. For each of the nodes, whose rows
  /// on this rank are given, this rank's block of the histogram of all ranks' rows, or the whole
  /// one of its own.
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
    const bool is_dealt = blocks_.size() > 2;
    if (is_dealt) {
      std::vector<std::size_t> counts;
      for (std::size_t rank = 0; rank + 1 < blocks_.size(); ++rank) {
        counts.push_back(nodes.size() * block_cells(rank));
      }
      scatter_sums(*group_, memory_, counts, most_of_sums(*group_, gradients, nodes), own_);
    }
    const std::vector<sums>& own = is_dealt ? own_ : memory_;
    std::vector<std::vector<sums>> blocks;
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      const auto first = own.begin() + static_cast<std::ptrdiff_t>(node * cells);
      blocks.emplace_back(first, first + static_cast<std::ptrdiff_t>(cells));
    }
    return blocks;
  }

 private:
  [[nodiscard]] std::size_t mine() const noexcept {
    return blocks_.size() > 2 ? static_cast<std::size_t>(group_->rank()) : 0;
  }
  [[nodiscard]] std::size_t block_cells(std::size_t rank) const noexcept {
    return data_->cell_begin()[blocks_[rank + 1]] - data_->cell_begin()[blocks_[rank]];
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
