// Definitions of replica_tree.hpp.
#pragma once

#include <algorithm>

#include <parx/reduction/replica_tree.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE std::vector<int> merges_of(std::span<const replica_range> nodes, int replicas) {
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

PARX_INLINE std::vector<replica_range> nodes_within(replica_range range, int replicas) {
  std::vector<replica_range> found;
  for (int next = range.first; next < range.last; next = found.back().last) {
    int last = range.last;
    while (!detail::is_node({next, last}, replicas)) --last;
    found.push_back({next, last});
  }
  return found;
}

PARX_INLINE double tree_sum(std::span<const double> numbers) {
  if (numbers.size() == 1) return numbers[0];
  const auto half =
      static_cast<std::size_t>(detail::middle_of({0, static_cast<int>(numbers.size())}));
  return tree_sum(numbers.first(half)) + tree_sum(numbers.subspan(half));
}

PARX_INLINE replica_plan::replica_plan(int replicas, int rank, int ranks, int stages)
    : replicas_(replicas), own_(replicas_of(rank, ranks, replicas)) {
  std::vector<replica_range> mine, sent;
  for (int i = own_.first; i < own_.last; ++i) mine.push_back({i, i + 1});
  own_merges_ = merges_of(mine, replicas);
  for (int each = 0; each < ranks; ++each) {
    const auto nodes = nodes_within(replicas_of(each, ranks, replicas), replicas);
    sums_of_.push_back(nodes.size());
    sent.insert(sent.end(), nodes.begin(), nodes.end());
  }
  const std::vector<std::size_t> of_user = sums_of_;
  const std::vector<int> merges = merges_of(sent, replicas);
  for (int stage = stages; stage-- > 0;) {
    for (int each = 0; each < ranks; ++each) {
      for (std::size_t i = 0; i < of_user[static_cast<std::size_t>(each)]; ++i) {
        order_.push_back({stage * ranks + each, i});
      }
    }
    merges_.insert(merges_.end(), merges.begin(), merges.end());
    if (stage + 1 == stages) continue;
    ++merges_.back();
    sums_of_.insert(sums_of_.end(), of_user.begin(), of_user.end());
  }
}

PARX_INLINE int replica_plan::most_kept() const noexcept {
  int kept = 0, most = 0;
  for (std::size_t i = 0; i + 1 < own_merges_.size(); ++i) {
    kept += 1 - own_merges_[i];
    most = std::max(most, kept);
  }
  return most;
}

}  // namespace parx
