// Definitions of plan.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/core/formatted.hpp>
#include <parx/plan/detail/planner.hpp>
#include <parx/plan/plan.hpp>
#include <parx/plan/stages.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE double planned_step::bytes() const noexcept {
  double sum = 0;
  for (const planned_traffic& each : traffic) sum += each.bytes;
  return sum;
}

}  // namespace parx

namespace parx::inline PARX_ABI::detail {

PARX_INLINE std::size_t part_of(std::size_t count, std::size_t shards,
                                std::size_t element) noexcept {
  constexpr std::size_t line = 64;
  return shards == 1 ? count * element
                     : ((count + shards - 1) / shards * element + line - 1) / line * line;
}

PARX_INLINE planner::planner(const model_shapes& shapes, const cluster& machine,
                             const step_work& work, std::size_t optimizer,
                             const planned_layout& layout)
    : shapes_(shapes),
      machine_(machine),
      work_(work),
      optimizer_(optimizer),
      layout_(layout),
      shards_(static_cast<std::size_t>(machine.ranks / layout.copies)) {
  require(layout.how.zero >= 0 && layout.how.zero <= 3, "plan: {}: give zero= 0 to 3",
          to_string(layout.how));
  require(layout.copies >= 1 && machine.ranks % layout.copies == 0,
          "plan: {} ranks are not {} copies of {}", machine.ranks, layout.copies,
          to_string(layout.how));
  if (layout.how.zero == 0) shards_ = 1;
  add_units();
  add_tables();
}

PARX_INLINE planned_step planner::result() const {
  planned_step step{.layout = layout_, .memory = memory()};
  const double parts = layout_.how.zero == 0 ? machine_.ranks : static_cast<double>(shards_);
  const double others = (parts - 1) / parts;  // the fraction that a rank sends
  const double passes = static_cast<double>(work_.micro_batches);
  const bool gathers = layout_.how.zero == 3 && !layout_.host_pages;
  const double values = static_cast<double>(total_.values.whole);
  const double gradients = static_cast<double>(total_.gradients.whole);
  // The bytes of one gather and one reduction of all units. Stages 1 and 2 only gather values that
  // the optimizer has changed.
  const double gather = layout_.host_pages ? 0 : others * (gathers ? values : gradients);
  const double reduce = others * gradients;
  const std::string axis = layout_.copies > 1 ? "shard" : "dp";
  const double units = operations();
  const double rounds = units * (parts - 1);
  const double gather_time = layout_.host_pages ? 0 : time(gather, rounds, crosses(), 1);
  const double reduce_time = time(reduce, rounds, crosses(), 1);
  const double gathers_a_step = gathers ? 2 * passes : 1;
  add(step, axis, gathers_a_step * gather + reduce, gathers_a_step * gather_time + reduce_time);
  double replicas_time = 0;
  if (layout_.copies > 1) {
    const auto replicas = static_cast<double>(layout_.copies);
    const double bytes = 2 * gradients / parts * (replicas - 1) / replicas;
    // All ranks of a host do that at the same time.
    replicas_time =
        time(bytes, 2 * units * (replicas - 1), machine_.hosts > 1, machine_.ranks_a_host());
    add(step, "replicate", bytes, replicas_time);
  }
  double rows_time = 0;
  if (table_traffic_ > 0) {
    rows_time = time(table_traffic_, 3.0 * (machine_.ranks - 1), machine_.hosts > 1,
                     layout_.how.zero == 0 ? 1 : machine_.ranks_a_host());
    add(step, "tables", table_traffic_, rows_time);
  }
  const double forward = work_.forward_flops / machine_.flops;
  const double backward = work_.backward_flops / machine_.flops;
  // AdamW reads values, gradients and moments and writes all but the gradients.
  step.optimizer = (static_cast<double>(total_.optimizer.part) * 2 +
                    static_cast<double>(total_.gradients.part) * 3) /
                   machine_.memory_bandwidth;
  step.compute = passes * (forward + backward);
  const double last = (reduce_time + replicas_time) / units;
  if (layout_.how.zero == 0) {
    step.seconds = step.compute - backward + std::max(backward, gather_time + reduce_time) + last +
                   gather_time / units;
  } else if (!gathers) {
    step.seconds = step.compute - forward - backward + std::max(forward, gather_time) +
                   std::max(backward, reduce_time + replicas_time) + last + gather_time / units;
  } else {
    step.seconds =
        passes * std::max(forward, gather_time) + (passes - 1) * std::max(backward, gather_time) +
        std::max(backward, gather_time + reduce_time + replicas_time) + last + gather_time / units;
  }
  step.seconds += step.optimizer + rows_time;
  step.fits = step.memory.total() <= machine_.memory_of_rank();
  return step;
}

PARX_INLINE void planner::add_units() {
  units_.resize(shapes_.units.size());
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    // A unit's parameters of one dtype lie one after the other and are cut as one.
    std::array<std::size_t, dtype_count> trained{}, frozen{};
    for (const planned_parameter& each : shapes_.parameters) {
      require(each.unit < units_.size(), "plan: \"{}\" is in unit {} of {}", each.path, each.unit,
              units_.size());
      if (each.unit != unit || is_table(each)) continue;
      (each.trainable ? trained : frozen)[static_cast<std::size_t>(each.type)] += each.count();
    }
    for (std::size_t type = 0; type < dtype_count; ++type) {
      const auto element = static_cast<dtype>(type);
      units_[unit].values += cut(frozen[type], size_of(element));
      units_[unit].values += cut(trained[type], size_of(element));
      units_[unit].gradients += cut(trained[type], size_of(element));
      units_[unit].optimizer += cut(trained[type], state_bytes(element, optimizer_));
    }
    total_.values += units_[unit].values;
    total_.gradients += units_[unit].gradients;
    total_.optimizer += units_[unit].optimizer;
  }
}

PARX_INLINE void planner::add_tables() {
  const auto ranks = static_cast<double>(machine_.ranks),
             passes = static_cast<double>(work_.micro_batches);
  for (const planned_parameter& each : shapes_.parameters) {
    if (!is_table(each)) continue;
    const std::size_t rows = std::min(work_.table_rows, each.extents[0]);
    const std::size_t row = each.bytes() / std::max<std::size_t>(each.extents[0], 1);
    const std::size_t state = each.count() * state_bytes(each.type, optimizer_);
    const std::size_t parts = layout_.how.zero == 0 ? 1 : shards_;
    const std::size_t part = (each.extents[0] + parts - 1) / parts * row;
    tables_.values += layout_.how.zero == 0 ? each.bytes() : part;
    tables_.gradients += each.trainable ? (layout_.how.zero == 0 ? each.bytes() : part) : 0;
    tables_.optimizer += each.trainable ? state / parts : 0;
    constexpr double number = 4;  // bytes of a row's number
    const auto batch = static_cast<double>(rows), width = static_cast<double>(row);
    if (layout_.how.zero == 0) {
      if (!each.trainable) continue;
      // Every rank gets all ranks' rows, unless an all-reduce of the whole table is cheaper.
      const double by_rows = (ranks - 1) * batch * (width + number);
      const bool cheaper = ranks * batch * (width + number) < static_cast<double>(each.bytes());
      table_traffic_ +=
          cheaper ? by_rows : 2 * static_cast<double>(each.bytes()) * (ranks - 1) / ranks;
    } else {
      const double shards = static_cast<double>(shards_), others = (shards - 1) / shards;
      const double sent = batch * (width + number);
      // A row's gradient goes to its owner in every replica.
      const double owners = layout_.copies - 1 / shards;
      table_traffic_ += others * passes * sent + (each.trainable ? owners * sent : 0);
      tables_.working += rows * row * (each.trainable ? 2 : 1);
    }
  }
}

PARX_INLINE planned_memory planner::memory() const {
  planned_memory m = tables_;
  const bool accumulates = work_.micro_batches > 1;
  m.values += layout_.how.zero == 3 ? total_.values.part : total_.values.whole;
  m.optimizer += total_.optimizer.part;
  if (layout_.how.zero < 2) {
    m.gradients += total_.gradients.whole;
  } else {
    // Several micro-batches are added up in whole gradients.
    m.gradients += total_.gradients.part + (accumulates ? total_.gradients.whole : 0);
    if (!accumulates) m.working += in_use(&unit_bytes::gradients);
  }
  if (layout_.how.zero == 3 && !layout_.host_pages) m.working += in_use(&unit_bytes::values);
  m.activations = work_.activation_bytes;
  return m;
}

PARX_INLINE std::size_t planner::in_use(whole_and_part unit_bytes::*what) const {
  std::size_t most = 0;
  for (std::size_t i = 1; i < units_.size(); ++i) {
    const std::size_t next = i + 1 < units_.size() ? (units_[i + 1].*what).whole : 0;
    most = std::max(most, (units_[i].*what).whole + next);
  }
  return (units_[0].*what).whole + most;
}

PARX_INLINE double planner::operations() const {
  const auto filled = std::count_if(units_.begin(), units_.end(),
                                    [](const unit_bytes& each) { return each.values.whole > 0; });
  return static_cast<double>(std::max<std::ptrdiff_t>(filled, 1));
}

PARX_INLINE double planner::time(double bytes, double rounds, bool over_network,
                                 int at_a_time) const noexcept {
  const plan_link& link = over_network ? machine_.network : machine_.memory_link;
  return bytes * (over_network ? at_a_time : 1) / link.bytes_per_second + rounds * link.latency;
}

PARX_INLINE void planner::add(planned_step& step, std::string axis, double bytes, double seconds) {
  if (bytes <= 0) return;
  step.traffic.push_back({std::move(axis), bytes, seconds});
  step.communication += seconds;
}

/// Plans a layout with stages or cut layers, for the ranks that have a part of the heaviest stage.
[[nodiscard]] PARX_INLINE planned_step plan_mesh(const model_shapes& shapes, const cluster& machine,
                                                 const step_work& work, std::size_t optimizer,
                                                 const planned_layout& layout) {
  const int pp = layout.how.pp, tp = layout.how.tp, dp = machine.ranks / (pp * tp);
  require(pp > 0 && tp > 0 && dp * pp * tp == machine.ranks,
          "plan: {}: {} ranks are not {} stages x {} parts of a layer x others",
          to_string(layout.how), machine.ranks, pp, tp);
  require(work.layers > 0 && work.boundary_bytes > 0,
          "plan: {} has stages or cut layers: give step_work::layers and boundary_bytes, as "
          "work_of() does",
          to_string(layout.how));
  const model_shapes stage = heaviest_stage(shapes, pp, tp);
  cluster copies = machine;
  copies.ranks = dp;
  copies.hosts = 1;
  copies.memory_link = link_along(machine, tp, dp);
  copies.memory_of_host = machine.memory_of_rank() * static_cast<std::size_t>(dp);
  const auto stages = static_cast<std::size_t>(pp), parts = static_cast<std::size_t>(tp);
  const std::size_t layers = (work.layers + stages - 1) / stages;
  const double share = static_cast<double>(layers) / static_cast<double>(work.layers * parts);
  step_work part = work;
  part.forward_flops *= share;
  part.backward_flops *= share;
  part.micro_batches *= stages * parts;
  const auto m = static_cast<double>(part.micro_batches);
  const std::size_t kept = std::min(stages, part.micro_batches);
  const std::size_t borders = std::min(work.layers * work.boundary_bytes, work.activation_bytes);
  part.activation_bytes =
      kept * layers * (borders + (work.activation_bytes - borders) / parts) / work.layers;
  planned_layout among = layout;
  among.how.pp = among.how.tp = 1;
  planned_step step = planner(stage, copies, part, optimizer, among).result();
  step.layout = layout;

  const auto boundary = static_cast<double>(work.boundary_bytes), t = static_cast<double>(tp);
  const auto seconds = [](const plan_link& over, double bytes, double rounds) {
    return bytes / over.bytes_per_second + rounds * over.latency;
  };
  double cut = 0;  // seconds for the cut layers in a forward, and again in a backward, of a stage
  if (tp > 1) {
    const double bytes = 2 * static_cast<double>(layers) * 2 * boundary * (t - 1) / t;
    cut = seconds(link_along(machine, 1, tp), bytes, 2 * static_cast<double>(layers) * 2 * (t - 1));
    step.traffic.push_back({"tp", 2 * m * bytes, 2 * m * cut});
  }
  double hop = 0;
  if (pp > 1) {
    hop = seconds(link_along(machine, tp * dp, pp), boundary, 1);
    const double ways = pp > 2 ? 2 : 1;
    step.traffic.push_back({"pp", ways * m * boundary, ways * m * hop});
  }
  const double forward = part.forward_flops / machine.flops + cut;
  const double backward = part.backward_flops / machine.flops + cut;
  const double all =
      one_f_one_b_seconds(pp, static_cast<int>(part.micro_batches), forward, backward, hop);
  step.bubble = all - m * (forward + backward);
  step.seconds += step.bubble + 2 * m * cut;
  step.communication = 0;
  for (const planned_traffic& each : step.traffic) step.communication += each.seconds;
  step.fits = step.memory.total() <= machine.memory_of_rank();
  return step;
}

}  // namespace parx::detail

namespace parx::inline PARX_ABI {

PARX_INLINE std::vector<planned_layout> mesh_layouts_of(const cluster& machine,
                                                     const step_work& work) {
  std::vector<planned_layout> all;
  for (int pp = 1; pp <= machine.ranks && static_cast<std::size_t>(pp) <= work.layers; ++pp) {
    for (int tp = 1; tp <= machine.ranks_a_host(); ++tp) {
      if (pp * tp == 1 || machine.ranks % (pp * tp) != 0 || machine.ranks_a_host() % tp != 0) {
        continue;
      }
      layout how{.pp = pp, .tp = tp};
      if (const int dp = machine.ranks / (pp * tp); dp > 1) how.dp = dp;
      if (pp > 1) how.microbatches = pp * tp * static_cast<int>(work.micro_batches);
      all.push_back({how});
    }
  }
  return all;
}

PARX_INLINE std::vector<planned_layout> layouts_of(const cluster& machine) {
  std::vector<planned_layout> all{planned_layout{}};
  if (machine.ranks == 1) return all;
  all.push_back({{.zero = 1}});
  all.push_back({{.zero = 2}});
  const bool one_host = machine.hosts == 1 && machine.shares_memory;
  all.push_back({{.zero = 3}, 1, one_host});
  if (one_host) all.push_back({{.zero = 3, .gathered = true}});
  if (machine.hosts > 1 && machine.ranks_a_host() > 1) {
    all.push_back({{.zero = 3, .hybrid = true}, machine.hosts});
  }
  return all;
}

PARX_INLINE planned_step plan_step(const model_shapes& shapes, const cluster& machine,
                                   const step_work& work, const planned_layout& layout,
                                   std::size_t optimizer_bytes) {
  require(machine.ranks >= 1 && machine.hosts >= 1 && machine.ranks % machine.hosts == 0,
          "plan: {} ranks on {} hosts: give as many ranks to each", machine.ranks, machine.hosts);
  require(machine.flops > 0 && machine.memory_bandwidth > 0 &&
              machine.network.bytes_per_second > 0 && machine.memory_link.bytes_per_second > 0,
          "plan: the speeds of ranks and links must be above 0");
  require(work.micro_batches > 0, "plan: a step has at least one micro-batch");
  if (layout.how.pp != 1 || layout.how.tp != 1) {
    return detail::plan_mesh(shapes, machine, work, optimizer_bytes, layout);
  }
  return detail::planner(shapes, machine, work, optimizer_bytes, layout).result();
}

PARX_INLINE training_plan plan(const model_shapes& shapes, const cluster& machine,
                               const step_work& work, const plan_options& options) {
  training_plan all{.machine = machine, .parameters = shapes.count(), .steps = {}};
  std::vector<planned_layout> layouts = options.layouts;
  if (layouts.empty()) {
    layouts = layouts_of(machine);
    const std::vector<planned_layout> meshes = mesh_layouts_of(machine, work);
    layouts.insert(layouts.end(), meshes.begin(), meshes.end());
  }
  for (const planned_layout& each : layouts) {
    all.steps.push_back(plan_step(shapes, machine, work, each, options.optimizer_bytes));
  }
  std::stable_sort(all.steps.begin(), all.steps.end(),
                   [](const planned_step& a, const planned_step& b) {
                     return a.fits != b.fits ? a.fits : a.seconds < b.seconds;
                   });
  return all;
}

}  // namespace parx
