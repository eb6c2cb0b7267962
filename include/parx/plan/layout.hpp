// layout: how a model and its samples are divided over the ranks of a job, as one value.
//
//   layout{.pp = 2, .tp = 2, .zero = 3}         // what is left of the ranks is dp
//   layout::parse("pp=2,tp=2,zero=3")           // the same, as a flag or a file has it
//
//   layout := "auto"                            the fastest that fits, by the planner's figures
//           | word ("," word)*                  in any order, each once, no blanks
//   word   := "ddp" | "zero=" 0..3 | "fsdp"     (the same as zero=3)
//           | "hybrid"                          zero=3 inside each host
//           | "gathered"                        with fsdp or hybrid: no memory shared by ranks
//           | ("pp" | "dp" | "tp") "=" n        stages, samples, layers over n ranks
//           | "sp"                              with tp: sequence parallelism
//           | "microbatches=" n                 of a step, in every layout
//           | "replicas=" n                     virtual replicas, not with hybrid
//           | "schedule=" name | "chunks=" n    with pp
//   n      := 1 .. 1048576                      also pp times dp times tp
//
// parse(to_string(l)) == l for every l that parse() returns; any other text is a usage_error that
// quotes it, the empty one too: a script's unset variable must not train in some layout. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/core/source.hpp>
#include <parx/mesh/layout.hpp>

namespace parx::inline PARX_ABI {

/// Of stages: the schedules of pipeline/catalog.hpp, in its order.
inline constexpr std::array<std::string_view, 7> pipeline_schedule_names{
    "gpipe", "1f1b", "eager_1f1b", "interleaved", "looped_bfs", "zb1p", "zbv"};

struct layout {
  bool is_automatic = false;  ///< the others are chosen when a model is given (automatic.hpp)
  int pp = 1;                 ///< stages of a pipeline
  int dp = remaining_ranks;   ///< ranks with different samples
  int tp = 1;                 ///< ranks over which layers are cut
  bool sp = false;            ///< activations between cut layers are cut along the sequence
  /// What is sharded over dp: 0 nothing (ddp), 1 optimizer state, 2 also gradients, 3 also values.
  int zero = 0;
  bool hybrid = false;    ///< with zero = 3: shards are those of the ranks of each host
  bool gathered = false;  ///< with zero = 3: values are gathered even where ranks share memory
  /// The parts of a batch whose gradients are added up in a step; 0: four a stage, 1 without.
  int microbatches = 0;
  /// Virtual replicas: the micro-batches of a step of all ranks together, dealt to the dp ranks.
  /// The bits of a step do not depend on dp then (reduction/replica_tree.hpp). 0: each rank is one.
  int replicas = 0;
  std::string schedule = "1f1b";  ///< one of pipeline_schedule_names
  int chunks = 1;                 ///< stages of each rank, for schedules that support several

  /// Throws usage_error that says what is wrong and what is allowed.
  [[nodiscard]] static layout parse(std::string_view text, call_site = call_site::current());
  bool operator==(const layout&) const = default;

  /// `microbatches`, or what 0 stands for. With virtual replicas the most that a rank has of them,
  /// once dp is known. Of a layout that validate() accepts.
  [[nodiscard]] int parts() const noexcept {
    const int ranks = std::max(dp, 1);
    if (replicas > 0) return (replicas + ranks - 1) / ranks;
    return microbatches > 0 ? microbatches : pp > 1 ? 4 * pp : 1;
  }
  /// Whether each rank has all of the model and only the samples are divided.
  [[nodiscard]] bool is_ddp() const noexcept { return pp == 1 && tp == 1 && zero == 0; }
};

/// The shortest text that parse() takes for this layout; "ddp" for the default.
[[nodiscard]] std::string to_string(const layout& how);

/// Throws usage_error for numbers out of range and for members that need others. The numbers of a
/// layout that passes can be multiplied as int.
void validate(const layout& how);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/layout_impl.hpp>
#endif
