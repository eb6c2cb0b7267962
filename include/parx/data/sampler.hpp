// distributed_sampler: which samples a rank takes in an epoch, as a pure function of plain numbers.
//
// One global order per epoch, a permutation seeded by (seed, epoch) that is the same on every rank,
// world size and platform; rank r of w takes its entries r, r + w, r + 2w, ... . All ranks get
// equally many entries. Because the order does not depend on the world size, a run stopped after k
// samples can go on with another number of ranks: entries k and later of the same order are
// distributed over them. Semantics: PyTorch's DistributedSampler (torch/utils/data/distributed.py),
// except that the epoch is an argument, so it cannot be forgotten, and that padding can carry
// weight 0. Immutable.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/data/group_by_length.hpp>
#include <parx/tensor/random.hpp>
#include <parx/types/replica_range.hpp>

namespace parx::inline PARX_ABI::data {

/// A sample and how much it counts: 1, or 0 for padding.
struct sample_entry {
  std::size_t index = 0;
  float weight = 1;
  friend bool operator==(const sample_entry&, const sample_entry&) = default;
};

/// In which order an epoch has its samples.
enum class sample_order { shuffled, sequential };

/// What happens when the ranks do not divide the number of samples.
enum class remainder {
  exact,   ///< pad with samples of weight 0: every sample counts exactly once
  repeat,  ///< pad with the first samples of the order, counted again: PyTorch's default
  drop,    ///< leave out the last samples of the order: PyTorch's drop_last
};

struct sampler_options {
  sample_order order = sample_order::shuffled;
  std::uint64_t seed = 0;
  data::remainder remainder = data::remainder::exact;
  length_groups group_by_length = {};  ///< samples of similar length in the same batch
  /// Virtual replicas, as in the layout: samples are dealt to these instead of the ranks, and a
  /// rank takes those of its replicas. 0: each rank is one.
  int replicas = 0;
};

/// A place in training: `consumed` samples of `epoch` are done, over all ranks.
struct sample_position {
  std::uint64_t epoch = 0;
  std::size_t consumed = 0;
  friend bool operator==(const sample_position&, const sample_position&) = default;
};

class distributed_sampler {
 public:
  /// For rank `rank` of `world`. Throws usage_error unless 0 <= rank < world, when there are
  /// lengths, but not one for each sample, and when there are fewer replicas than ranks.
  distributed_sampler(std::size_t size, int rank, int world, sampler_options options = {})
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

  /// For the calling rank of a group: anything that has rank() and size().
  template <typename Group>
  requires requires(const Group& group) {
    { group.rank() } -> std::convertible_to<int>;
    { group.size() } -> std::convertible_to<int>;
  }
  distributed_sampler(std::size_t size, const Group& group, sampler_options options = {})
      : distributed_sampler(size, static_cast<int>(group.rank()), static_cast<int>(group.size()),
                            std::move(options)) {}

  /// For a data set instead of its size: a compile-time error that says what to do.
  template <typename Source, typename Group>
    requires requires(const Source& source) { source.size(); }
  distributed_sampler(const Source&, const Group&, sampler_options = {})
      : distributed_sampler(0, 0, 1) {
    static_assert(std::is_void_v<Source>,
                  "a sampler takes the number of samples: distributed_sampler{set.size(), world}");
  }

  /// This rank's entries of `epoch`, after the first `consumed` samples of the global order. With
  /// virtual replicas the first entry of each of them, then the second of each, and so on.
  [[nodiscard]] std::vector<sample_entry> entries(std::uint64_t epoch,
                                                  std::size_t consumed = 0) const {
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

  /// The indices of entries(epoch, consumed).
  [[nodiscard]] std::vector<std::size_t> indices(std::uint64_t epoch,
                                                 std::size_t consumed = 0) const {
    std::vector<std::size_t> result;
    for (const sample_entry& entry : entries(epoch, consumed)) result.push_back(entry.index);
    return result;
  }

  /// How many entries every rank, or virtual replica, has, after the first `consumed` samples of
  /// the global order.
  [[nodiscard]] std::size_t per_rank(std::size_t consumed = 0) const noexcept {
    const std::size_t left = size_ - std::min(consumed, size_);
    const std::size_t rest = options_.remainder == remainder::drop ? 0 : parts() - 1;
    return (left + rest) / parts();
  }

  /// The one integer that a checkpoint needs, and its inverse: samples consumed since epoch 0.
  /// It is the same number on all ranks and means the same place at any world size.
  [[nodiscard]] std::uint64_t state(sample_position position) const noexcept {
    return position.epoch * size_ + std::min(position.consumed, size_);
  }
  [[nodiscard]] sample_position position(std::uint64_t state) const {
    require(size_ > 0, "distributed_sampler: no samples, so no position {}", state);
    return {state / size_, static_cast<std::size_t>(state % size_)};
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
  [[nodiscard]] std::size_t world() const noexcept { return world_; }
  [[nodiscard]] const sampler_options& options() const noexcept { return options_; }
  /// To how many the samples are dealt: to the virtual replicas, or else the ranks.
  [[nodiscard]] std::size_t parts() const noexcept {
    return options_.replicas > 0 ? to_size(options_.replicas) : world_;
  }
  /// Those of them that this rank has.
  [[nodiscard]] replica_range own_parts() const noexcept {
    return replicas_of(static_cast<int>(rank_), static_cast<int>(world_), options_.replicas);
  }

 private:
  static constexpr std::size_t to_size(int value) noexcept {
    return static_cast<std::size_t>(value);
  }

  std::size_t size_;
  std::size_t rank_;
  std::size_t world_;
  sampler_options options_;
};

}  // namespace parx::data
