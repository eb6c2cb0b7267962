// group_by_length: puts samples of similar length into the same batch, which then needs little
// padding.
//
// The epoch's order is cut into pools of `pool` batches; each pool is sorted by length, cut into
// batches again, and the batches are put in a random order. Samples that fill no batch stay at the
// end. Every sample comes exactly once. The result is one global order, a function of the seed and
// the epoch, so ranks get batches of similar length at the same time. Pure. As Hugging Face's
// LengthGroupedSampler (trainer_pt_utils.py), which does not shuffle the batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data {

/// How samples of like length come into the same batch.
struct length_groups {
  /// Tokens of each sample, as the text data sets give it; null: no grouping.
  std::shared_ptr<const std::vector<std::uint32_t>> lengths = nullptr;
  std::size_t batch = 32;  ///< samples that all ranks together take in one optimizer step
  std::size_t pool = 50;   ///< batches that are sorted together; fewer: more random, more padding
};

/// Reorders `order`, a permutation of 0 ... lengths.size() - 1.
inline void group_by_length(std::vector<std::size_t>& order, const length_groups& groups,
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
