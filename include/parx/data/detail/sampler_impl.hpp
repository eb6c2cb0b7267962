// Definitions of sampler.hpp.
#pragma once

#include <numeric>

#include <parx/core/check.hpp>
#include <parx/data/sampler.hpp>
#include <parx/tensor/random.hpp>

namespace parx::inline PARX_ABI::data {

PARX_INLINE distributed_sampler::distributed_sampler(std::size_t size, int rank, int world,
                                                     sampler_options options)
    : size_(size), rank_(to_size(rank)), world_(to_size(world)), options_(std::move(options)) {
  require(world > 0 && rank >= 0 && rank < world,
          "distributed_sampler: rank {} of a world of {}; need 0 <= rank < world", rank, world);
  require(options_.replicas == 0 || options_.replicas >= world,
          "distributed_sampler: {} replicas cannot be dealt to {} ranks: each needs one at least",
          options_.replicas, world);
  const auto& lengths = options_.group_by_length.lengths;
  require(lengths == nullptr || lengths->size() == size,
          "distributed_sampler: {} lengths for {} samples", lengths ? lengths->size() : 0, size);
}

PARX_INLINE std::vector<sample_entry> distributed_sampler::entries(std::uint64_t epoch,
                                                                   std::size_t consumed) const {
  consumed = std::min(consumed, size_);
  std::vector<std::size_t> order;
  if (options_.order == sample_order::shuffled)
    order = random_stream(options_.seed + epoch, "distributed_sampler").permutation(size_);
  if (options_.group_by_length.lengths != nullptr) {
    if (order.empty()) {
      order.resize(size_);
      std::iota(order.begin(), order.end(), std::size_t{0});
    }
    group_by_length(order, options_.group_by_length,
                    random_stream(options_.seed + epoch, "group_by_length"));
  }
  const auto own = to_size(own_parts().size()), first = to_size(own_parts().first);
  std::vector<sample_entry> mine(per_rank(consumed) * own);
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const std::size_t position = consumed + k / own * parts() + first + k % own;
    const std::size_t wrapped = position % size_;
    mine[k].index = order.empty() ? wrapped : order[wrapped];
    mine[k].weight = position >= size_ && options_.remainder == remainder::exact ? 0.0F : 1.0F;
  }
  return mine;
}

PARX_INLINE std::vector<std::size_t> distributed_sampler::indices(std::uint64_t epoch,
                                                                  std::size_t consumed) const {
  std::vector<std::size_t> result;
  for (const sample_entry& entry : entries(epoch, consumed)) result.push_back(entry.index);
  return result;
}

PARX_INLINE sample_position distributed_sampler::position(std::uint64_t state) const {
  require(size_ > 0, "distributed_sampler: no samples, so no position {}", state);
  return {state / size_, static_cast<std::size_t>(state % size_)};
}

}  // namespace parx::data
