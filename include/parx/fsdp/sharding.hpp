// sharded_over(fsdp): how parx::save, parx::load and a trainer distribute an fsdp's checkpoint over
// the ranks. They are in <parx/checkpoint.hpp> and <parx/train.hpp>, see
// checkpoint/save.hpp.
#pragma once

#include <parx/checkpoint/shard_files.hpp>
#include <parx/fsdp/any_fsdp.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what.
template <typename Model>
[[nodiscard]] sharding sharded_over(any_fsdp<Model>& wrapper) {
  return sharded_over(wrapper.group(), wrapper.replica_group());
}

}  // namespace parx
