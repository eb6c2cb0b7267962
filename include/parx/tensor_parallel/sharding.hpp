// sharded_over(tensor_parallel): how parx::save, parx::load and a trainer distribute its checkpoint
// over the ranks. They are in <parx/checkpoint.hpp> and <parx/train.hpp>, see
// checkpoint/distributed_state.hpp.
#pragma once

#include <parx/checkpoint/shard_layout.hpp>
#include <parx/tensor_parallel/tensor_parallel.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what. Valid while the wrapper's parallelized lives.
template <typename Inner>
[[nodiscard]] sharding sharded_over(tensor_parallel<Inner>& wrapper) {
  return wrapper.cut().sharded_over(wrapper.job_group(), wrapper.inner().replica_group());
}

}  // namespace parx
