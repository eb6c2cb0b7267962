// plan: memory, traffic and time of the ways to train a model on a cluster, by formula.
//
//   const auto shapes = parx::shapes_of(model, {"transformer.h.*"});
//   const auto table = parx::plan(shapes, {.ranks = 8, .hosts = 2}, parx::work_of({.layers = 12}));
//   fmt::print("{}", parx::to_text(table));
//
// With N ranks over which state is cut, Psi bytes of parameters (tables apart) and k micro-batches,
// a rank moves a step: ddp 2 Psi (N-1)/N; stages 1 and 2 as much; stage 3 (2k + 1) Psi (N-1)/N. In
// hybrid N is the ranks of a host, and 2 Psi/N (H-1)/H more go over H hosts. Of a table move the
// rows of the batch. Source: ZeRO (arXiv 1910.02054); FSDP2's two adjacent units.
//
// In pp stages whose layers tp ranks cut, ranks / (pp tp) have the same part, and a step has pp tp
// times the micro-batches, so that every layout computes the same samples. Between two stages move
// the results of each micro-batch and their gradients; over tp four all-reduces of them a layer.
//
// Time is that of the longer of computing and communicating, forward and backward apart, plus what
// nothing hides: a unit's first gather and last reduction, and the optimizer's step.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/plan/cluster.hpp>
#include <parx/plan/shapes.hpp>
#include <parx/plan/stages.hpp>
#include <parx/plan/work.hpp>

namespace parx::inline PARX_ABI {

/// One way to train. Ranks = pp x tp x shards x replicas.
struct plan_layout {
  std::string name = "ddp";
  int stage = 0;     ///< of ZeRO; 0: every rank holds everything
  int replicas = 1;  ///< of what the shards make up; the shards are neighbours
  bool host_pages = false;  ///< the shards read the same pages, and nothing is gathered
  int pp = 1;               ///< stages of a pipeline, by 1F1B
  int tp = 1;               ///< ranks that cut a layer; neighbours
};

/// Bytes of one rank.
struct planned_memory {
  std::size_t values = 0, gradients = 0, optimizer = 0;
  std::size_t working = 0;  ///< the two largest adjacent units beside the root, rows of tables
  std::size_t activations = 0;

  [[nodiscard]] std::size_t total() const noexcept {
    return values + gradients + optimizer + working + activations;
  }
};

/// What one rank sends along an axis in a step, and as much is received.
struct planned_traffic {
  std::string axis;  ///< "dp", "pp", "tp"; in hybrid "shard" and "replicate"; "tables"
  double bytes = 0;
  double seconds = 0;
};

struct planned_step {
  plan_layout layout;
  planned_memory memory;
  std::vector<planned_traffic> traffic = {};
  double compute = 0, communication = 0, optimizer = 0;  ///< seconds, each alone
  double bubble = 0;                                     ///< in which a stage waits for others
  double seconds = 0;                                    ///< of a step
  bool fits = false;

  [[nodiscard]] double bytes() const noexcept;
};

struct plan_options {
  /// Bytes of state that the optimizer keeps of a parameter: 8 is AdamW's (two moments in float32),
  /// SGD has 0, or 4 with momentum. What is trained in 16 bits has 4 more, its copy in float32.
  std::size_t optimizer_bytes = 8;
  /// Empty: all that the cluster permits.
  std::vector<plan_layout> layouts = {};
};

namespace detail {

/// A unit's bytes: `whole` on each rank, or the part of one of them.
struct cut_bytes {
  std::size_t whole = 0, part = 0;
  void operator+=(const cut_bytes& more) noexcept {
    whole += more.whole;
    part += more.part;
  }
};

/// What a wrapper has to hold for one unit, tables apart.
struct unit_bytes {
  cut_bytes values, gradients, optimizer;
};

/// ceil(count / shards) elements, rounded up to cache lines: unit_plan's rule.
[[nodiscard]] std::size_t part_of(std::size_t count, std::size_t shards,
                                  std::size_t element) noexcept;
[[nodiscard]] inline std::size_t state_bytes(dtype type, std::size_t optimizer) noexcept {
  return optimizer + (size_of(type) < 4 ? 4 : 0);
}

class planner {
 public:
  planner(const model_shapes& shapes, const cluster& machine, const step_work& work,
          std::size_t optimizer, const plan_layout& layout);

  [[nodiscard]] planned_step result() const;

 private:
  void add_units();

  void add_tables();

  [[nodiscard]] planned_memory memory() const;
  /// The root, which stays, and the two largest units that follow each other.
  [[nodiscard]] std::size_t in_use(cut_bytes unit_bytes::*what) const;

  /// Of one kind in a pass: one for each unit.
  [[nodiscard]] double operations() const;

  [[nodiscard]] cut_bytes cut(std::size_t count, std::size_t element) const noexcept {
    return {count * element, part_of(count, shards_, element)};
  }
  [[nodiscard]] bool is_table(const planned_parameter& each) const noexcept {
    return each.rows == table_rows::of_a_batch && machine_.ranks > 1;
  }
  /// Whether the ranks that share the state are on several hosts.
  [[nodiscard]] bool crosses() const noexcept {
    return machine_.hosts > 1 && machine_.ranks / layout_.replicas > machine_.ranks_a_host();
  }
  /// A ring goes over ranks host by host, so a host's link carries it once in each direction.
  [[nodiscard]] double time(double bytes, double rounds, bool over_network,
                            int at_a_time) const noexcept;
  static void add(planned_step& step, std::string axis, double bytes, double seconds);

  const model_shapes& shapes_;
  const cluster& machine_;
  const step_work& work_;
  const std::size_t optimizer_;
  const plan_layout& layout_;
  std::size_t shards_;
  std::vector<unit_bytes> units_;
  unit_bytes total_;
  planned_memory tables_;
  double table_traffic_ = 0;
};

}  // namespace detail

/// Stages and cut layers that `machine` permits, under the names that the examples' --parallel
/// takes: up to a stage a layer, and layers cut inside a host.
[[nodiscard]] std::vector<plan_layout> mesh_layouts_of(const cluster& machine,
                                                       const step_work& work);

/// The ways that `machine` permits without stages and cut layers: ddp, zero1, zero2, fsdp (stage
/// 3); over several hosts of several ranks hybrid; inside a host fsdp has its pages in common, and
/// "gathered" is the other way.
[[nodiscard]] std::vector<plan_layout> layouts_of(const cluster& machine);

/// Memory, traffic and time of one layout. Throws usage_error for a cluster, layout or unit that
/// cannot be.
[[nodiscard]] planned_step plan_step(const model_shapes& shapes, const cluster& machine,
                                     const step_work& work, const plan_layout& layout,
                                     std::size_t optimizer_bytes = 8);

/// The layouts that fit, the fastest first, then those that do not.
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
