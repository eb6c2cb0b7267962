// What a trainer needs from a tensor_parallel besides forward and backward
// (train/wrapped_model.hpp), and saving and loading: see checkpoint/distributed_state.hpp.
#pragma once

#include <parx/checkpoint/distributed_state.hpp>
#include <parx/tensor_parallel/clip.hpp>
#include <parx/tensor_parallel/tensor_parallel.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what. Valid while the wrapper's parallelized lives.
template <typename Inner>
[[nodiscard]] sharding sharded_over(tensor_parallel<Inner>& wrapper) {
  return wrapper.cut().sharded_over(wrapper.job_group(), wrapper.inner().replica_group());
}

}  // namespace parx
