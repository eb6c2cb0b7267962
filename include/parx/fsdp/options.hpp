// fsdp_options: how an fsdp shards a model. Equal on all ranks, which is checked.
#pragma once

#include <cstddef>

#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/fsdp/shard_groups.hpp>
#include <parx/fsdp/unit_choice.hpp>

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

struct fsdp_options {
  /// Which parts are cut over the ranks: 1 the optimizer's state; 2 the gradients, too; 3 the
  /// values, too.
  int stage = 3;
  unit_choice units{};
  /// Hybrid sharding: see shard_groups.hpp. Gradients then travel as a ddp's, between all ranks,
  /// and tables of embeddings are in units.
  shard_scope shard_within{};
  value_storage values = value_storage::by_hosts;
  embedding_tables tables = embedding_tables::by_rows;
  parx::after_forward after_forward = parx::after_forward::release;
  /// Units that are gathered ahead of the one that computes; each takes memory in stage 3.
  std::size_t prefetch = 1;
  /// serial: the bits of a ddp with the same order, for every stage and every cut into units. See
  /// reduce_options::order for its price between hosts.
  reduction_order order = reduction_order::serial;
};

}  // namespace parx
