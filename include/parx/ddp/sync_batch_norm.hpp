// sync_batch_norm: batch norm over the samples of all ranks, as one process with the whole batch
// would compute it, also if ranks have different numbers of samples.
//
// Forward sums the values, their squares and their counts over the group; backward the two sums of
// its formula. Each is one small blocking all_reduce on every rank that trains. Rows of weight 0,
// with which the sampler pads an epoch, count in the statistics: see nn/batch_norm.hpp.
// Source: PyTorch's SyncBatchNorm.
#pragma once

#include <cstddef>
#include <span>

#include <parx/comm/collectives/all_reduce.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/batch_norm.hpp>
#include <parx/nn/replica_scope.hpp>

namespace parx::inline PARX_ABI {

template <typename T = float>
class sync_batch_norm : public nn::batch_norm_layer<sync_batch_norm<T>, T> {
 public:
  /// The group is borrowed. In training, every rank calls the layer, and backward, the same number
  /// of times; in evaluation nothing is exchanged. Under a ddp over the same group all ranks must
  /// use the same parameters in a pass: otherwise the sums here and those of the gradients are
  /// issued in different orders. If that does not hold, give the layer a subgroup() of all ranks.
  sync_batch_norm(std::size_t channels, process_group& group, nn::batch_norm_options options = {})
      : nn::batch_norm_layer<sync_batch_norm<T>, T>(channels, options), group_(&group) {}

  [[nodiscard]] auto sums() const {
    require(!nn::replica_scope::is_active(),
            "sync_batch_norm normalises over the samples of all ranks, which virtual replicas do "
            "not depend on: use batch_norm with replicas= in the layout");
    return [group = group_](std::span<double> sums) { all_reduce(*group, sums); };
  }

 private:
  process_group* group_;
};

}  // namespace parx
