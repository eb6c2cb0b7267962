// Definitions of group_by_length.hpp.
#pragma once

#include <algorithm>

#include <parx/core/check.hpp>
#include <parx/data/group_by_length.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE void group_by_length(std::vector<std::size_t>& order, const length_groups& groups,
                                 const random_stream& random) {
  const auto& lengths = *groups.lengths;
  require(groups.batch > 0 && groups.pool > 0,
          "group_by_length: batch and pool must be at least 1");
  const std::size_t whole = order.size() / groups.batch * groups.batch;
  const std::size_t step = groups.batch * groups.pool;
  std::vector<std::size_t> sorted;
  for (std::size_t begin = 0; begin < whole; begin += step) {
    const std::size_t end = std::min(begin + step, whole);
    sorted.assign(order.begin() + static_cast<std::ptrdiff_t>(begin),
                  order.begin() + static_cast<std::ptrdiff_t>(end));
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](std::size_t a, std::size_t b) { return lengths[a] < lengths[b]; });
    const auto batches = random.substream(begin).permutation(sorted.size() / groups.batch);
    auto out = order.begin() + static_cast<std::ptrdiff_t>(begin);
    for (const std::size_t each : batches) {
      out = std::copy_n(sorted.begin() + static_cast<std::ptrdiff_t>(each * groups.batch),
                        groups.batch, out);
    }
  }
}

}  // namespace parx::data
