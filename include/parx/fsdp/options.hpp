// fsdp_options: how an fsdp shards a model. Equal on all ranks, which is checked.
#pragma once

#include <cstddef>
#include <string>

#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/core/check.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/unit_choice.hpp>
#include <parx/fsdp/wire.hpp>
#include <parx/reduction/reduction_state.hpp>

namespace parx::inline PARX_ABI {

/// What happens to a unit's values between its forward and its backward pass.
enum class reshard_after_forward {
  yes,  ///< released and gathered again: about one unit is in memory at a time
  no,   ///< kept: less traffic, but as much memory for values as stage 2
};

/// Where stage 3 keeps the values of units.
enum class value_storage {
  by_hosts,  ///< `shared` if the ranks share memory, else `gathered`
  /// Gathered from all ranks when they are used. Backward gathers, too: if the loss of one rank
  /// does not depend on a unit, then no rank's may.
  gathered,
  shared     ///< one copy for all ranks, which must share memory; nothing is gathered
};

/// What happens to embedding tables that are only looked up in (nn::embedding_use::lookups) and
/// have at least 256 KiB.
enum class embedding_tables {
  by_rows,  ///< cut by rows, in every stage: rows are fetched, no rank has the whole table
  in_units  ///< sharded with the other parameters
};

/// Where the gradients of several micro-batches are added up (those whose backward passes run under
/// no_sync(), and the last one).
enum class accumulated_gradients {
  /// Whole, on each rank: bit-identical to ddp, and no traffic until the last micro-batch.
  whole,
  /// In the parts: every pass reduces its gradients, and no rank keeps more than two units of them.
  /// Each such pass is collective. The sum over ranks and passes is then formed in another order,
  /// so the result differs from ddp's by rounding (1e-6 of it in 32-bit floats). Rows of tables
  /// still wait for the last pass. Stages 2 and 3; with .shard_within only the last pass sends to
  /// replicas.
  sharded
};

struct fsdp_options {
  /// What is sharded: 1 the optimizer state; 2 also the gradients; 3 also the values.
  int stage = 3;
  unit_choice units{};
  /// Hybrid sharding: see shard_groups.hpp. Replicas exchange gradients of their part alone, unless
  /// .order is serial: flat_sum.hpp has the byte counts of both.
  shard_scope shard_within{};
  value_storage values = value_storage::by_hosts;
  embedding_tables tables = embedding_tables::by_rows;
  parx::reshard_after_forward reshard_after_forward = parx::reshard_after_forward::yes;
  /// How many units are gathered ahead of the one that computes. Each takes memory in stage 3.
  std::size_t prefetch = 1;
  /// serial: bit-identical to ddp with the same order, for every stage and choice of units. Over
  /// TCP it sends as much as the other orders, except that units below some 32 KiB go from rank to
  /// rank; with .shard_within it sends more between hosts.
  reduction_order order = reduction_order::serial;
  accumulated_gradients accumulate = accumulated_gradients::whole;
  reduction_finish finish = reduction_finish::with_backward;
  /// Sends values or gradients as bfloat16, which halves the traffic: see wire.hpp.
  wire_types wire{};
  /// Virtual replicas, as ddp_options::replicas, with the same bits. Every rank runs equally many
  /// backward passes, all but the last under no_sync(): where others have a replica more, the first
  /// one is of an empty batch. A replica's gradients are added up in slots for two units (stage 1:
  /// in memory of their own) and leave those for the sums of replica_sum.hpp, which are whole: with
  /// several replicas a rank, at most log2 (rounded up) of their number times the gradients of the
  /// model. After the step each rank keeps its part. Not with .shard_within, .wire.reduce or
  /// .accumulate.
  int replicas = 0;
};

namespace detail {

/// Throws usage_error for options that are invalid on this number of ranks.
inline void validate(const fsdp_options& options, int ranks, const std::string& who) {
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
  require(options.replicas == 0 || (options.shard_within.is_all() && !options.wire.reduce &&
                                    options.accumulate == accumulated_gradients::whole),
          "{}: .replicas sums gradients in an order of its own: leave .shard_within, .wire.reduce "
          "and .accumulate out",
          who);
  require(options.replicas == 0 || options.replicas >= ranks,
          "{}: .replicas = {} for {} ranks: a rank needs at least one", who, options.replicas,
          ranks);
}

}  // namespace detail

}  // namespace parx
