// What a trainer needs from an fsdp besides forward and backward (train/wrapped_model.hpp), and
// saving and loading: see checkpoint/distributed_state.hpp.
#pragma once

#include <parx/checkpoint/distributed_state.hpp>
#include <parx/checkpoint/sharded.hpp>
#include <parx/fsdp/clip.hpp>
#include <parx/fsdp/fsdp.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what.
template <typename Module>
[[nodiscard]] sharding sharded_over(fsdp<Module>& wrapper) {
  return sharded_over(wrapper.group(), wrapper.replica_group());
}

}  // namespace parx
