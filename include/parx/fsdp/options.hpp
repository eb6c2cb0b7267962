// fsdp_options: how an fsdp shards a model. Equal on all ranks, which is checked.
#pragma once

#include <cstddef>
#include <string>

#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/ddp/reduction_finish.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/fsdp/wire.hpp>

namespace parx::inline PARX_ABI {

/// What becomes of a unit's values between its forward pass and its backward pass.
enum class after_forward {
  release,  ///< they are gathered again: one unit is in memory at a time
  keep,     ///< they stay: less traffic, as much memory for values as stage 2
};

/// Where stage 3 has the values of units.
enum class value_storage {
  by_hosts,  ///< shared where the ranks share memory, else gathered
  gathered,  ///< gathered from all ranks when they are used
  shared     ///< one copy for all ranks, which must share memory; nothing is gathered
};

/// Where the tables of embeddings are of which a step uses the rows of its batch alone
/// (nn::embedding_use::lookups), if they have 256 KiB or more.
enum class embedding_tables {
  by_rows,  ///< cut by rows, in every stage: rows are fetched, no rank has the whole table
  in_units  ///< with the other parameters
};

/// Where the gradients of micro-batches are added up, whose backward passes run under no_sync().
enum class accumulated_gradients {
  /// On each rank, whole: a ddp's bits, and no traffic until the last micro-batch.
  whole,
  /// In the parts: every pass sends its gradients, and no rank keeps more than two units of them.
  /// Each such pass is collective. A sum over ranks and passes is then formed in another order: the
  /// result is within rounding of a ddp's, 1e-6 of it in 32-bit floats. Rows of tables still wait
  /// for the last pass. Stages 2 and 3; with .shard_within only the last pass sends to replicas.
  sharded
};

struct fsdp_options {
  /// Which parts are cut over the ranks: 1 the optimizer's state; 2 the gradients, too; 3 the
  /// values, too.
  int stage = 3;
  unit_choice units{};
  /// Hybrid sharding: see shard_groups.hpp. Of gradients, parts alone travel between the ranks that
  /// have the same one, unless .order is serial: see part_sum.hpp for the bytes of either.
  shard_scope shard_within{};
  value_storage values = value_storage::by_hosts;
  embedding_tables tables = embedding_tables::by_rows;
  parx::after_forward after_forward = parx::after_forward::release;
  /// Units that are gathered ahead of the one that computes; each takes memory in stage 3.
  std::size_t prefetch = 1;
  /// serial: the bits of a ddp with the same order, for every stage and every cut into units. Over
  /// TCP it sends as much as any other, except for units below some 32 KiB, which go from rank to
  /// rank; with .shard_within it sends more between hosts.
  reduction_order order = reduction_order::serial;
  accumulated_gradients accumulate = accumulated_gradients::whole;
  reduction_finish finish = reduction_finish::with_backward;
  /// What travels with half the bytes, for half the precision: see wire.hpp.
  wire_types wire{};
};

namespace detail {

/// Throws usage_error for options that no ranks could carry out.
inline void require_possible(const fsdp_options& options, const std::string& who) {
  require(options.stage >= 1 && options.stage <= 3,
          "{}: .stage is 1 (optimizer state), 2 (and gradients) or 3 (and values), not {}", who,
          options.stage);
  require(options.accumulate == accumulated_gradients::whole || options.stage > 1,
          "{}: .accumulate = sharded is for stages 2 and 3: stage 1 keeps all gradients whole",
          who);
  for (const auto& wire : {options.wire.gather, options.wire.reduce}) {
    require(!wire || *wire == dtype::bfloat16, "{}: .wire takes dtype::bfloat16, not {}", who,
            wire ? name_of(*wire) : "");
  }
  require(!options.wire.gather || options.values != value_storage::shared,
          "{}: .wire.gather says how values travel, but with .values = shared all ranks read the "
          "same pages and nothing is gathered. Leave one of them out",
          who);
}

}  // namespace detail

}  // namespace parx
