// The option aggregates of groups and collectives, for designated initialisers.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
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

/// Who moves asynchronous operations on.
enum class progress_mode : std::uint8_t {
  thread,  ///< a thread of the group, started by its first asynchronous operation
  /// The thread that issued them, in poll(), test(), wait() and blocking operations of any of its
  /// groups: for hosts without a spare core.
  inline_poll,
};

/// What chooses between the algorithms of an operation; see schedule/rules.hpp and explain().
struct choice_options {
  std::shared_ptr<const std::vector<algorithm_rule>> rules;  ///< before prices; equal on all ranks
  std::optional<link_costs> costs;  ///< for the prices, instead of what is measured or assumed
};

struct group_options {
  /// How long an operation may take before it fails. There is no infinite setting.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  progress_mode progress = progress_mode::thread;
  /// A warning that names who is missing is logged when an operation has waited this long.
  std::chrono::milliseconds warn_after = std::chrono::seconds(5);
  /// When nothing has moved for this long, the rank tells the others what it waits in and looks
  /// what they are in. That costs a few questions to the job's store; a group that waits often
  /// and for good looks later, at most after eight times as long.
  std::chrono::milliseconds look_after = std::chrono::milliseconds(50);
  choice_options choice{};
  /// Writes the group's operations down; init() makes it. The same for all groups of the rank.
  std::shared_ptr<flight_recorder> recorder{};
};

/// For a group that is made of ranks of another one. Its name is what errors, warnings and traces
/// call it ("dp at pp=1"); without one it is called by its members.
struct subgroup_options {
  std::string name{};
};

struct split_options {
  int key = 0;         ///< orders the ranks of a new group, before their old ranks
  std::string name{};  ///< as subgroup_options::name
};

/// Zero stands for the group's own timeout.
inline constexpr std::chrono::milliseconds group_timeout{0};

/// For operations that only move data.
struct collective_options {
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct rooted_options {
  int root = 0;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct reduce_options {
  reduce_op op = reduce_op::sum;
  /// For reduce_op::premul_sum: the sum is multiplied by it. Equal on all ranks, which is checked.
  /// Unlike NCCL's it is no weight of a rank: each would have to scale a copy of its input.
  double factor = 1;
  /// For reduce_op::sum of floating types: the result is multiplied by the rounded 1 / *divide_by
  /// (or is zero where that is zero). Read when the operation starts to run, so it may point into
  /// the result of one issued before on the same group: a total count, for a mean without a second
  /// pass.
  const double* divide_by = nullptr;
  /// serial: the same bits however the ranks are connected and the vectors cut. Where all ranks
  /// share memory every all_reduce and reduce_scatter is, unless `use` or a rule says otherwise;
  /// over TCP an algorithm that gives it can be slower. Equal on all ranks, which is checked.
  reduction_order order = reduction_order::any;
  /// An all_reduce in place writes `data` only once it has the result: after a failure they are as
  /// before, and can be reduced again by the group that shrink() gives. Costs two copies, and in
  /// the group memory for the longest such vector, which it keeps. Equal on all ranks. Out of place
  /// every reduction leaves its input as it is. The failed call may have ended well on other ranks:
  /// agree on what is repeated, by a number of the last call that all have finished.
  bool preserve_input = false;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct rooted_reduce_options {
  int root = 0;
  reduce_op op = reduce_op::sum;
  double factor = 1;
  reduction_order order = reduction_order::any;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

/// avg and premul_sum mean nothing here: what one rank gets the next ones build on.
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
  /// Of a send: the shape of what it carries, for recv_any_shape. Their product is its count.
  axis_extents extents{};
  std::chrono::milliseconds timeout = group_timeout;
};

struct any_shape_options {
  int tag = 0;
  std::optional<dtype> type{};  ///< refuses elements of another type
  std::size_t max_bytes = std::size_t{1} << 30;  ///< of one message; refuses a larger one
  std::chrono::milliseconds timeout = group_timeout;
};

struct warm_up_options {
  std::chrono::milliseconds timeout = group_timeout;
};

struct object_options {
  int root = 0;  ///< where there is one
  std::size_t max_bytes = std::size_t{1} << 30;  ///< of one object; all ranks refuse a larger one
  std::chrono::milliseconds timeout = group_timeout;
};

}  // namespace parx
