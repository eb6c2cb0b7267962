// pipeline_options: how a pipeline trains a model. Equal on all ranks, except for the groups, which
// are each rank's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <parx/comm/process_group.hpp>
#include <parx/ddp/ddp.hpp>
#include <parx/fsdp/options.hpp>
#include <parx/pipeline/action.hpp>
#include <parx/pipeline/one_f_one_b.hpp>

namespace parx::inline PARX_ABI {

/// ZeRO stage 1 (shards optimizer state), 2 (and gradients) or 3 (and values), numbered as in
/// DeepSpeed, for pipeline_options::sharding.
[[nodiscard]] inline fsdp_options zero(int stage) { return {.stage = stage}; }

struct pipeline_options {
  pipeline_schedule schedule = schedules::one_f_one_b;
  /// Of a step. A batch of fewer rows has as many as it has rows, so that replicas may differ: of
  /// layers that talk to other replicas (sync_batch_norm) the calls then do not match.
  int microbatches = 8;
  int chunks = 1;  ///< stages of each rank, for the schedules that support several
  double hop = 0;  ///< see pipeline_shape; for eager 1F1B
  /// Your own table (from_csv) instead of a schedule; it fixes the number of micro-batches.
  std::optional<pipeline_table> table{};
  /// The first block of each stage, from 0. Empty: balanced by `weights`.
  std::vector<std::size_t> cut{};
  /// The cost of each block, in any unit, such as measured seconds. Empty: its parameter count.
  std::vector<double> weights{};
  /// The ranks that have the same stages and different samples: mesh["dp"].
  process_group* data_parallel = nullptr;
  /// The ranks that have the other parts of these stages' layers: mesh["tp"].
  process_group* tensor_parallel = nullptr;
  /// The ranks that together have one copy of the model, if layers are cut:
  /// mesh.flatten({"pp", "tp"}).
  process_group* model_parallel = nullptr;
  /// All ranks that train the model: mesh.all(). Needed by a trainer, and if data_parallel has
  /// several ranks and stages share parameters.
  process_group* job = nullptr;
  /// Initializes the parameters that have no values.
  std::uint64_t seed = 0;
  /// For the ddp of each stage over data_parallel. Its reduction groups sum tied parameters. With
  /// .replicas the micro-batches of a step are this rank's (replicas_of); the program deals them.
  ddp_options reductions{};
  /// How each stage is sharded over data_parallel: zero(1). Empty: not at all, it is in a ddp.
  /// Parameters of a sharded stage that have a reduction group (tied ones) stay whole.
  std::optional<fsdp_options> sharding{};
};

}  // namespace parx
