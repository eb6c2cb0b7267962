// The option aggregates of groups and collectives, for designated initialisers.
#pragma once

#include <chrono>
#include <cstdint>

#include <parx/comm/schedule/algorithm.hpp>
#include <parx/types/reduce.hpp>

namespace parx {

/// Who moves asynchronous operations on.
enum class progress_mode : std::uint8_t {
  thread,  ///< a thread of the group, started by its first asynchronous operation
  inline_poll,  ///< the calling thread, in poll(), test() and wait(): for hosts without a spare core
};

struct group_options {
  /// How long an operation may take before it fails. There is no infinite setting.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  progress_mode progress = progress_mode::thread;
  /// A warning that names who is missing is logged when an operation has waited this long.
  std::chrono::milliseconds warn_after = std::chrono::seconds(30);
};

/// Zero stands for the group's own timeout.
inline constexpr std::chrono::milliseconds group_timeout{0};

struct reduce_options {
  reduce_op op = reduce_op::sum;
  double factor = 1;  ///< for reduce_op::premul_sum: every contribution is multiplied by it
  /// For reduce_op::sum of floating types: the result is divided by *divide_by (or is zero where that is
  /// zero). Read when the operation starts to run, so it may point into the result of an operation that
  /// was issued before on the same group: a total count, for a mean without a second pass.
  const double* divide_by = nullptr;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct rooted_reduce_options {
  int root = 0;
  reduce_op op = reduce_op::sum;
  double factor = 1;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct gather_options {
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct broadcast_options {
  int root = 0;
  algorithm use = algorithm::automatic;
  std::chrono::milliseconds timeout = group_timeout;
};

struct barrier_options {
  std::chrono::milliseconds timeout = group_timeout;
};

struct message_options {
  int tag = 0;
  std::chrono::milliseconds timeout = group_timeout;
};

}  // namespace parx
