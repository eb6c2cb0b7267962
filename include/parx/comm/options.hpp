// The options of groups and collectives: aggregates, to be written with designated initialisers.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <parx/comm/axis_extents.hpp>
#include <parx/comm/schedule/algorithm.hpp>
#include <parx/comm/schedule/price.hpp>
#include <parx/comm/schedule/reduction_order.hpp>
#include <parx/types/dtype.hpp>
#include <parx/types/reduce.hpp>

namespace parx::inline PARX_ABI {

struct algorithm_rule;
class flight_recorder;
class failure_log;

/// How an operation's algorithm is chosen; see schedule/rules.hpp and explain().
struct choice_options {
  std::shared_ptr<const std::vector<algorithm_rule>> rules;  ///< before costs; equal on all ranks
  std::optional<link_costs> costs;  ///< instead of measured or assumed ones
};

struct group_options {
  /// How long an operation may take before it fails. There is no infinite setting.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// When an operation has waited this long, a warning is logged that names the missing ranks.
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);
  /// When an operation has made no progress for this long, the rank publishes which call it waits
  /// in and compares it with the other ranks' calls. That costs a few requests to the job's store.
  /// The interval doubles after each such wait that ended well, up to eight times this value.
  std::chrono::milliseconds look_after = std::chrono::milliseconds(50);
  /// A deadlock that is proven and has stood this long is an error on all ranks. Proven: no thread
  /// of these ranks can go on before another one of them enters a call (deadlock.hpp says what is
  /// told apart). never: there is only the warning.
  std::chrono::milliseconds deadlock_after = std::chrono::seconds(10);
  static constexpr std::chrono::milliseconds never = std::chrono::hours(100'000);
  choice_options choice{};
  /// Records the group's operations. init() makes one for all groups of the rank.
  std::shared_ptr<flight_recorder> recorder{};
  /// Where the rank's failure is recorded. init() makes one for all groups of the rank.
  std::shared_ptr<failure_log> failures{};
};

/// For a group made of some ranks of another one. `name` appears in errors, warnings and traces
/// ("dp at pp=1"); if empty, the name lists the members.
struct subgroup_options {
  std::string name{};
};

struct split_options {
  int key = 0;         ///< new ranks are ordered by key, then by old rank
  std::string name{};  ///< as subgroup_options::name
};

/// Zero means the group's own timeout.
inline constexpr std::chrono::milliseconds group_timeout{0};

/// Of collective_options::tag.
inline constexpr int no_tag = -1;

/// For operations that only move data.
struct collective_options {
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
  /// What is moved, where calls of the same count and dtype may move different things: the number
  /// of a layer, say. Equal on all ranks, which is checked. process_group::name_tags names it in
  /// errors.
  int tag = no_tag;
};

struct rooted_options {
  int root = 0;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct reduce_options {
  reduce_op op = reduce_op::sum;
  /// For reduce_op::premul_sum: the sum is multiplied by it. It must be equal on all ranks, which
  /// is checked. (NCCL's is a weight per rank, for which each rank must scale a copy of its input.)
  double factor = 1;
  /// For reduce_op::sum of floating types: the result is multiplied by the rounded 1 / *divide_by,
  /// or is zero if *divide_by is zero. It is read when the operation starts to run, so it may point
  /// into the result of an operation issued earlier on the same group. Example: a total count, for
  /// a mean without a second pass.
  const double* divide_by = nullptr;
  /// serial: the bits do not depend on how the ranks are connected or how vectors are cut. If all
  /// ranks share memory, every all_reduce and reduce_scatter is serial, unless `use` or a rule says
  /// otherwise; over TCP the serial algorithms can be slower. Equal on all ranks, which is checked.
  reduction_order order = reduction_order::any;
  /// For all_reduce in place: `data` is written only when the whole result is there. After a
  /// failure it is unchanged and can be reduced again by the group that shrink() gives. Costs two
  /// copies, and memory for the longest such vector, which the group keeps. Equal on all ranks.
  /// (Out of place, every reduction leaves its input unchanged.) The failed call may have succeeded
  /// on other ranks: the ranks must agree on the last call that all have finished, and repeat those
  /// after it.
  bool preserve_input = false;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
  int tag = no_tag;  ///< as collective_options::tag
};

struct rooted_reduce_options {
  int root = 0;
  reduce_op op = reduce_op::sum;
  double factor = 1;
  reduction_order order = reduction_order::any;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

/// avg and premul_sum are refused: each rank's result is an input of the next ranks' results.
struct scan_options {
  reduce_op op = reduce_op::sum;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct barrier_options {
  std::chrono::milliseconds timeout = group_timeout;
};

struct message_options {
  int tag = 0;  ///< not negative
  /// Of a send: the shape of its data, for recv_any_shape. Their product is the number of elements.
  axis_extents extents{};
  std::chrono::milliseconds timeout = group_timeout;
};

struct any_shape_options {
  int tag = 0;
  std::optional<dtype> type{};                   ///< if set, elements of another type are refused
  std::size_t max_bytes = std::size_t{1} << 30;  ///< of one message; larger ones are refused
  std::chrono::milliseconds timeout = group_timeout;
};

struct warm_up_options {
  std::chrono::milliseconds timeout = group_timeout;
};

struct object_options {
  int root = 0;                                  ///< for operations that have one
  std::size_t max_bytes = std::size_t{1} << 30;  ///< of one object; all ranks refuse a larger one
  std::chrono::milliseconds timeout = group_timeout;
};

}  // namespace parx
