// replica_tree: the one order in which the gradients of V virtual replicas are summed, whatever the
// number of ranks. Pure functions of plain numbers.
//
// A step has V micro-batches, the replicas. Ranks compute consecutive ones (replicas_of), and their
// gradients are summed along one binary tree over the replicas' numbers: a node [first, last) of n
// replicas splits at the largest power of two below n, and its sum is that of the left half plus
// that of the right. With V = 8 on three ranks:
//
//              [0,8)                 rank 0 computes 0 1    and sends the sum of [0,2)
//         [0,4)     [4,8)            rank 1 computes 2 3 4  and sends those of [2,4) and [4,5)
//      [0,2) [2,4) [4,6) [6,8)       rank 2 computes 5 6 7  and sends those of [5,6) and [6,8)
//
// So a rank sends the sums of the largest nodes that it has whole, and the rest of the tree is
// added up from those: bits do not depend on the number of ranks. (EasyScale, Li et al., SC 2023,
// has the idea of virtual replicas; it fixes the order by one buffer for each.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/abi.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

// A node is the range of the replicas that it sums.

/// Where a node of several replicas splits.
[[nodiscard]] constexpr int middle_of(replica_range node) noexcept {
  int half = 1;
  while (2 * half < node.size()) half *= 2;
  return node.first + half;
}

/// Whether the tree over `replicas` has this node.
[[nodiscard]] constexpr bool is_node(replica_range wanted, int replicas) noexcept {
  replica_range node{0, replicas};
  while (node != wanted) {
    if (node.size() <= 1) return false;
    const int middle = middle_of(node);
    if (wanted.last <= middle) node.last = middle;
    else if (wanted.first >= middle) node.first = middle;
    else return false;
  }
  return true;
}

}  // namespace detail

/// For nodes that follow each other from left to right: how often, after each of them, the last two
/// sums that are there are added up to one. What is left are sums of the largest nodes that the
/// given ones make up; of all nodes, the root's alone.
[[nodiscard]] inline std::vector<int> merges_of(std::span<const replica_range> nodes,
                                                int replicas) {
  std::vector<int> merges;
  std::vector<replica_range> sums;
  for (const replica_range& each : nodes) {
    sums.push_back(each);
    merges.push_back(0);
    while (sums.size() > 1) {
      const replica_range both{sums[sums.size() - 2].first, sums.back().last};
      if (!detail::is_node(both, replicas)) break;
      sums.pop_back();
      sums.back() = both;
      ++merges.back();
    }
  }
  return merges;
}

/// The largest nodes of the tree that are within `range`, from left to right: at most two for each
/// level of the tree.
[[nodiscard]] inline std::vector<replica_range> nodes_within(replica_range range, int replicas) {
  std::vector<replica_range> found;
  for (int next = range.first; next < range.last; next = found.back().last) {
    int last = range.last;
    while (!detail::is_node({next, last}, replicas)) --last;
    found.push_back({next, last});
  }
  return found;
}

/// The sum of a number of each replica, along the tree.
[[nodiscard]] inline double tree_sum(std::span<const double> numbers) {
  if (numbers.size() == 1) return numbers[0];
  const auto half =
      static_cast<std::size_t>(detail::middle_of({0, static_cast<int>(numbers.size())}));
  return tree_sum(numbers.first(half)) + tree_sum(numbers.subspan(half));
}

/// What a rank adds up and sends: the tree, dealt to the ranks.
///
/// With several `stages` each replica is computed by as many ranks, which all have a part of its
/// gradient (a table that stages of a pipeline share): rank u * ranks + r of the group is
/// data-parallel rank r of stage u. Each stage's parts are summed along the tree, then these sums
/// from the last stage to the first, in the order of backward.
class replica_plan {
 public:
  /// Of `rank`, of `ranks`, whichever stage it is.
  replica_plan(int replicas, int rank, int ranks, int stages = 1)
      : replicas_(replicas), own_(replicas_of(rank, ranks, replicas)) {
    std::vector<replica_range> mine, sent;
    for (int i = own_.first; i < own_.last; ++i) mine.push_back({i, i + 1});
    own_merges_ = merges_of(mine, replicas);
    for (int each = 0; each < ranks; ++each) {
      const auto nodes = nodes_within(replicas_of(each, ranks, replicas), replicas);
      sums_of_.push_back(nodes.size());
      sent.insert(sent.end(), nodes.begin(), nodes.end());
    }
    const std::vector<std::size_t> of_stage = sums_of_;
    const std::vector<int> merges = merges_of(sent, replicas);
    for (int stage = stages; stage-- > 0;) {
      for (int each = 0; each < ranks; ++each) {
        for (std::size_t i = 0; i < of_stage[static_cast<std::size_t>(each)]; ++i) {
          order_.push_back({stage * ranks + each, i});
        }
      }
      merges_.insert(merges_.end(), merges.begin(), merges.end());
      if (stage + 1 == stages) continue;
      ++merges_.back();
      sums_of_.insert(sums_of_.end(), of_stage.begin(), of_stage.end());
    }
  }

  [[nodiscard]] int replicas() const noexcept { return replicas_; }
  /// Those of this rank.
  [[nodiscard]] replica_range own() const noexcept { return own_; }
  /// Whether another rank has one more.
  [[nodiscard]] bool has_fewer() const noexcept {
    return own_.size() * static_cast<int>(sums_of_.size()) < replicas_;
  }
  /// As merges_of, after each of this rank's replicas.
  [[nodiscard]] std::span<const int> own_merges() const noexcept { return own_merges_; }
  /// How many sums this rank keeps at most while a replica computes.
  [[nodiscard]] int most_kept() const noexcept {
    int kept = 0, most = 0;
    for (std::size_t i = 0; i + 1 < own_merges_.size(); ++i) {
      kept += 1 - own_merges_[i];
      most = std::max(most, kept);
    }
    return most;
  }
  /// By rank of the group: how many sums it sends.
  [[nodiscard]] std::span<const std::size_t> sums_of() const noexcept { return sums_of_; }
  [[nodiscard]] std::size_t all_sums() const noexcept { return order_.size(); }
  [[nodiscard]] std::size_t most_sums() const noexcept {
    return *std::max_element(sums_of_.begin(), sums_of_.end());
  }
  /// A sum that is sent: sum `number` of rank `rank` of the group.
  struct sent_sum {
    int rank = 0;
    std::size_t number = 0;
  };
  /// All sums that are sent, from the left of the tree, or of the last stage's, to the right.
  [[nodiscard]] std::span<const sent_sum> order() const noexcept { return order_; }
  /// As merges_of, after each of them.
  [[nodiscard]] std::span<const int> merges() const noexcept { return merges_; }

 private:
  int replicas_;
  replica_range own_;
  std::vector<int> own_merges_;
  std::vector<std::size_t> sums_of_;
  std::vector<sent_sum> order_;
  std::vector<int> merges_;
};

}  // namespace parx
