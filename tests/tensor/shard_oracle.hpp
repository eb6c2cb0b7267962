// An oracle for parts of tensors that knows nothing of runs: lists of indices, cut one by one.
#pragma once

#include <cstddef>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <parx/tensor/shard_spec.hpp>

namespace shard_oracle {

/// The indices into the whole, one by one, and the extents that they are arranged in.
struct listing {
  std::vector<std::size_t> extents;
  std::vector<std::size_t> indices;

  static listing whole(const parx::shape& s) {
    listing all{{s.begin(), s.end()}, std::vector<std::size_t>(s.size())};
    std::iota(all.indices.begin(), all.indices.end(), std::size_t{0});
    return all;
  }
  /// Keeps what has a coordinate on `axis` that `keeps`.
  template <typename Keeps>
  [[nodiscard]] listing filter(std::size_t axis, Keeps keeps) const {
    listing part{extents, {}};
    part.extents[axis] = 0;
    for (std::size_t i = 0; i < extents[axis]; ++i) part.extents[axis] += keeps(i) ? 1U : 0U;
    std::size_t below = 1;
    for (std::size_t a = axis + 1; a < extents.size(); ++a) below *= extents[a];
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (keeps(i / below % extents[axis])) part.indices.push_back(indices[i]);
    }
    return part;
  }
  [[nodiscard]] listing flat(std::size_t begin, std::size_t end) const {
    const auto first = indices.begin();
    return {{end - begin},
            {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)}};
  }
};

/// Where chunk `index` of `count` of `extent` things is, dealt one by one to the first chunks.
inline std::pair<std::size_t, std::size_t> chunk_by_dealing(std::size_t extent, int index,
                                                            int count) {
  std::vector<std::size_t> sizes(static_cast<std::size_t>(count), 0);
  for (std::size_t i = 0; i < extent; ++i) ++sizes[i % sizes.size()];
  const auto before = sizes.begin() + index;
  const std::size_t begin = std::accumulate(sizes.begin(), before, std::size_t{0});
  return {begin, begin + *before};
}

struct random_cuts {
  std::mt19937 engine{5};
  std::size_t below(std::size_t bound) { return engine() % bound; }

  parx::shape any_shape() {
    parx::shape s;
    for (std::size_t axis = below(5); axis > 0; --axis) s.push_back(1 + below(6));
    return s;
  }
  /// Cuts both in the same way.
  void cut(parx::shard_spec& spec, listing& list) {
    if (spec.is_flat() || list.extents.empty() || below(5) == 0) {
      std::size_t begin = below(spec.size() + 1), end = below(spec.size() + 1);
      if (begin > end) std::swap(begin, end);
      spec = spec.is_flat() && below(2) == 0 ? spec.slice(0, begin, end) : spec.flat(begin, end);
      list = list.flat(begin, end);
      return;
    }
    const std::size_t axis = below(list.extents.size()), extent = list.extents[axis];
    const int sign = below(2) == 0 ? 0 : static_cast<int>(list.extents.size());
    const int named = static_cast<int>(axis) - sign;  // counted from the end, or not
    if (below(3) == 0) {
      std::size_t begin = below(extent + 1), end = below(extent + 1);
      if (begin > end) std::swap(begin, end);
      spec = spec.slice(named, begin, end);
      list = list.filter(axis, [&](std::size_t i) { return i >= begin && i < end; });
      return;
    }
    const int count = 1 + static_cast<int>(below(4)), index = static_cast<int>(below(4)) % count;
    std::vector<std::size_t> blocks;
    std::vector<bool> kept;
    for (std::size_t left = extent; left > 0; left -= blocks.back()) {
      blocks.push_back(1 + below(left));
      const auto [begin, end] = chunk_by_dealing(blocks.back(), index, count);
      for (std::size_t i = 0; i < blocks.back(); ++i) kept.push_back(i >= begin && i < end);
    }
    if (blocks.size() == 1 && below(2) == 0) spec = spec.chunk(named, index, count);
    else spec = spec.chunk_of_blocks(named, blocks, index, count);
    list = list.filter(axis, [&](std::size_t i) { return static_cast<bool>(kept[i]); });
  }
};

}  // namespace shard_oracle
