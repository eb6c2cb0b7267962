// sharded_over(pipeline): how parx::save, parx::load and a trainer distribute a pipeline's
// checkpoint over the ranks. They are in <parx/checkpoint.hpp> and <parx/train.hpp>, see
// checkpoint/save.hpp.
#pragma once

#include <string>

#include <parx/checkpoint/shard_files.hpp>
#include <parx/pipeline/any_pipeline.hpp>

namespace parx::inline PARX_ABI {

/// Which of the job's ranks writes what. Copies of a parameter are on the data-parallel ranks of a
/// stage, on stages that share it, and, if it is not cut, on the tensor-parallel ranks. Valid while
/// the pipeline lives.
template <typename T>
[[nodiscard]] sharding sharded_over(any_pipeline<T>& pipe) {
  const shard_place replica = place_in(pipe.data_group());
  const shard_place cut = place_in(pipe.tensor_group());
  return {.file = place_in(pipe.job_group()),
          .copies =
              [=, &pipe](const std::string& name, const shard_spec&) {
                const shard_place same = place_within(pipe.user_of(name), pipe.replica_of(name));
                return pipe.is_cut(name) ? same : place_within(same, cut);
              },
          .others = place_in(pipe.job_group()),
          .buffers = place_within(replica, cut)};
}

}  // namespace parx
