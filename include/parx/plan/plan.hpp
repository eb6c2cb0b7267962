// plan: memory, traffic and time of the ways to train a model on a cluster, by formula.
//
//   const auto shapes = parx::shapes_of(model, {"transformer.h.*"});
//   const auto table = parx::plan(shapes, {.ranks = 8, .hosts = 2}, parx::work_of({.layers = 12}));
//   fmt::print("{}", parx::to_text(table));
//
// For state sharded over N ranks, Psi bytes of parameters (without tables) and k micro-batches, a
// rank sends in a step: ddp and ZeRO stages 1 and 2: 2 Psi (N-1)/N; stage 3: (2k + 1) Psi (N-1)/N.
// In hybrid, N is the number of ranks of a host, and 2 Psi/N (H-1)/H more go over the H hosts. For
// a table only the rows of the batch are sent. In stage 3 two adjacent units are in memory, as in
// FSDP2. Source: ZeRO (arXiv 1910.02054).
//
// With pp stages, and layers cut over tp ranks, ranks / (pp tp) ranks have the same part, and a
// step has pp tp times the micro-batches, so that every layout computes the same samples. Between
// stages the results of each micro-batch and their gradients are sent; over tp, four all-reduces of
// that size in each layer.
//
// The time is, for forward and for backward, the longer of computing and communicating, plus what
// cannot overlap: the first gather and the last reduction of a unit, and the optimizer's step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/plan/cluster.hpp>
#include <parx/plan/layout.hpp>
#include <parx/plan/shapes.hpp>
#include <parx/plan/work.hpp>

namespace parx::inline PARX_ABI {

/// A layout on a cluster. Ranks = pp x tp x shards x copies; stages are those of 1F1B, and the tp
/// ranks over which layers are cut are neighbours.
struct planned_layout {
  layout how;
  int copies = 1;           ///< of the sharded model; the shards of one are neighbours
  bool host_pages = false;  ///< the shards share memory pages, so nothing is gathered
};

/// Bytes of one rank.
struct planned_memory {
  std::size_t values = 0, gradients = 0, optimizer = 0;
  std::size_t working = 0;  ///< the root, the two largest adjacent units, and rows of tables
  std::size_t activations = 0;

  [[nodiscard]] std::size_t total() const noexcept {
    return values + gradients + optimizer + working + activations;
  }
};

/// What one rank sends along an axis in a step; it receives as much.
struct planned_traffic {
  std::string axis;  ///< "dp", "pp", "tp"; in hybrid "shard" and "replicate"; "tables"
  double bytes = 0;
  double seconds = 0;
};

/// A layout's memory, traffic and time of a step.
struct planned_step {
  planned_layout layout;
  planned_memory memory;
  std::vector<planned_traffic> traffic = {};
  double compute = 0, communication = 0, optimizer = 0;  ///< seconds, each alone
  double bubble = 0;   ///< seconds in which a stage waits for others
  double seconds = 0;  ///< of the whole step
  bool fits = false;

  [[nodiscard]] double bytes() const noexcept;
};

struct plan_options {
  /// Bytes of optimizer state for each parameter: 8 for AdamW (two moments in float32), 0 for SGD,
  /// 4 with momentum. 16-bit parameters have 4 more, a copy in float32.
  std::size_t optimizer_bytes = 8;
  /// Empty: all that the cluster permits.
  std::vector<planned_layout> layouts = {};
};

/// The layouts with stages or cut layers that `machine` permits: up to one stage for each layer,
/// and layers cut inside a host.
[[nodiscard]] std::vector<planned_layout> mesh_layouts_of(const cluster& machine,
                                                       const step_work& work);

/// The layouts that `machine` permits without stages and cut layers: ddp, zero=1, zero=2, fsdp
/// (stage 3); hybrid, on several hosts with several ranks each; inside one host fsdp shares its
/// pages, and "fsdp,gathered" does not.
[[nodiscard]] std::vector<planned_layout> layouts_of(const cluster& machine);

/// Memory, traffic and time of one layout. Throws usage_error for an invalid cluster, layout or
/// unit.
[[nodiscard]] planned_step plan_step(const model_shapes& shapes, const cluster& machine,
                                     const step_work& work, const planned_layout& layout,
                                     std::size_t optimizer_bytes = 8);

/// `steps` has the layouts that fit into memory, the fastest first, then those that do not.
struct training_plan {
  cluster machine;
  std::size_t parameters = 0;
  std::vector<planned_step> steps;
};

/// Pure. Throws as plan_step.
[[nodiscard]] training_plan plan(const model_shapes& shapes, const cluster& machine,
                                 const step_work& work, const plan_options& options = {});

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/plan_impl.hpp>
#endif
