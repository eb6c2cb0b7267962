// voting: the few columns of a node whose histograms are summed (PV-Tree, Meng 2016).
//
// Each rank votes for the k columns whose best splits of its own rows gain most. The 2 k columns
// with most votes are elected; of them alone the ranks' histograms are summed and searched. What a
// node sends does not grow with the number of columns, but the trees depend on which rank holds
// which rows: the same division gives the same bytes, another number of ranks gives other trees.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <parx/comm/collectives/all_gather.hpp>
#include <parx/trees/histogram_exchange.hpp>
#include <parx/trees/options.hpp>
#include <parx/trees/split.hpp>

namespace parx::inline PARX_ABI::trees {

/// Whether training with these options votes: where 2 k columns are all, there is nothing to elect.
[[nodiscard]] inline bool votes(const booster_options& options, std::size_t columns) noexcept {
  return options.tree_learner == tree_learner::voting &&
         2 * static_cast<std::size_t>(options.top_k) < columns;
}

/// Writes the columns of the best splits of one node to `votes`, the best first, and -1 where no
/// more columns gain. `found` has at most one split a column, and is reordered.
inline void vote(std::span<split_candidate> found, std::span<std::int32_t> votes) {
  const std::size_t count = std::min(found.size(), votes.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(),
                    is_better);
  std::fill(votes.begin(), votes.end(), -1);
  for (std::size_t i = 0; i < count; ++i) votes[i] = found[i].column;
}

/// The 2 k columns with most votes, or fewer where fewer have one, in ascending order. `votes` are
/// k of each rank, as vote() writes them. Of columns with equally many those come first that stand
/// higher in the ranks' votes, then the lower ones.
[[nodiscard]] inline std::vector<std::int32_t> elect(std::span<const std::int32_t> votes,
                                                     std::size_t k) {
  std::map<std::int32_t, std::pair<int, int>> places;  // column: -votes, the sum of its places
  for (std::size_t i = 0; i < votes.size(); ++i) {
    if (votes[i] < 0) continue;
    auto& [count, place] = places[votes[i]];
    --count;
    place += static_cast<int>(i % k);
  }
  std::vector<std::pair<std::pair<int, int>, std::int32_t>> order;
  for (const auto& [column, place] : places) order.emplace_back(place, column);
  std::sort(order.begin(), order.end());
  order.resize(std::min(order.size(), 2 * k));
  std::vector<std::int32_t> elected;
  for (const auto& each : order) elected.push_back(each.second);
  std::sort(elected.begin(), elected.end());
  return elected;
}

class election {
 public:
  /// All are kept by reference.
  election(process_group& group, std::span<const column_cuts> cuts, const booster_options& options)
      : group_(&group), cuts_(cuts), options_(&options) {}

  /// Before the nodes of a tree. Ranks vote by their part of min_child_weight, as in LightGBM.
  void begin(const fixed_gradients& gradients) {
    rule_.emplace(*options_, gradients, group_->size());
  }

  /// Collective: an all_gather of the votes, and a reduce_scatter of the elected columns' cells.
  /// `tasks` are those of all columns of all nodes, whose cells are of this rank's rows. Returns
  /// this rank's part of the elected ones, of all ranks' rows; the cells stay until the next call.
  /// `most` is most_of_sums() of the nodes.
  [[nodiscard]] std::vector<search_task> hold(std::span<const node_sums> nodes,
                                              std::span<const search_task> tasks,
                                              std::int64_t most) {
    const auto k = static_cast<std::size_t>(options_->top_k);
    const auto ranks = static_cast<std::size_t>(group_->size());
    const auto rank = static_cast<std::size_t>(group_->rank());
    const std::vector<std::int32_t> mine = votes_of(nodes, tasks, k);
    std::vector<std::int32_t> all(mine.size() * ranks);
    all_gather(*group_, mine, all);

    std::vector<search_task> sent;
    std::vector<sums> cells;
    std::vector<std::size_t> cell_begin{0};  // of each that is sent
    for (std::size_t node = 0; node < nodes.size(); ++node) {
      std::vector<std::int32_t> of_node;
      for (std::size_t r = 0; r < ranks; ++r) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>((r * nodes.size() + node) * k);
        of_node.insert(of_node.end(), first, first + static_cast<std::ptrdiff_t>(k));
      }
      for (const std::int32_t column : elect(of_node, k)) {
        sent.push_back(*find_task(tasks, node, static_cast<std::size_t>(column)));
        cells.insert(cells.end(), sent.back().cells.begin(), sent.back().cells.end());
        cell_begin.push_back(cells.size());
      }
    }
    const std::vector<std::size_t> blocks = column_blocks(cell_begin, group_->size());
    std::vector<std::size_t> counts;
    for (std::size_t r = 0; r < ranks; ++r) {
      counts.push_back(cell_begin[blocks[r + 1]] - cell_begin[blocks[r]]);
    }
    scatter_sums(*group_, cells, counts, most, cells_);
    std::span<const sums> rest = cells_;
    std::vector<search_task> searched(sent.begin() + static_cast<std::ptrdiff_t>(blocks[rank]),
                                      sent.begin() + static_cast<std::ptrdiff_t>(blocks[rank + 1]));
    for (search_task& task : searched) {
      task.cells = rest.first(task.cells.size());
      rest = rest.subspan(task.cells.size());
    }
    return searched;
  }

 private:
  /// k of each node.
  [[nodiscard]] std::vector<std::int32_t> votes_of(std::span<const node_sums> nodes,
                                                   std::span<const search_task> tasks,
                                                   std::size_t k) const {
    std::vector<node_sums> local(nodes.begin(), nodes.end());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (i > 0 && tasks[i - 1].node == tasks[i].node) continue;
      node_sums& here = local[tasks[i].node];
      here.total = {};
      for (const sums& cell : tasks[i].cells) here.total += cell;  // each column has all rows
      here.gain = rule_->gain(here.total, here.bounds);
    }
    std::vector<split_candidate> found = best_splits(*rule_, *options_, cuts_, local, tasks);
    std::vector<std::int32_t> votes(nodes.size() * k, -1);
    for (std::size_t first = 0, last = 0; first < tasks.size(); first = last) {
      while (last < tasks.size() && tasks[last].node == tasks[first].node) ++last;
      vote(std::span(found).subspan(first, last - first),
           std::span(votes).subspan(tasks[first].node * k, k));
    }
    return votes;
  }

  process_group* group_;
  std::span<const column_cuts> cuts_;
  const booster_options* options_;
  std::optional<gain_rule> rule_;  ///< of this rank's rows
  std::vector<sums> cells_;
};

}  // namespace parx::trees
