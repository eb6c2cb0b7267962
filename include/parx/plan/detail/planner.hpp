// planner: computes the plan of one layout without stages and cut layers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <parx/plan/cluster.hpp>
#include <parx/plan/plan.hpp>
#include <parx/plan/shapes.hpp>
#include <parx/plan/work.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI::detail {

/// A unit's bytes: all of them, and a rank's part.
struct whole_and_part {
  std::size_t whole = 0, part = 0;
  void operator+=(const whole_and_part& more) noexcept {
    whole += more.whole;
    part += more.part;
  }
};

/// What a wrapper holds for one unit, without tables.
struct unit_bytes {
  whole_and_part values, gradients, optimizer;
};

/// The bytes of ceil(count / shards) elements, rounded up to cache lines: unit_plan's rule.
[[nodiscard]] std::size_t part_of(std::size_t count, std::size_t shards,
                                  std::size_t element) noexcept;
/// Optimizer state of one parameter; 16-bit ones also have a copy in float32.
[[nodiscard]] inline std::size_t state_bytes(dtype type, std::size_t optimizer) noexcept {
  return optimizer + (size_of(type) < 4 ? 4 : 0);
}

class planner {
 public:
  /// `optimizer` is plan_options::optimizer_bytes. All else is borrowed.
  planner(const model_shapes& shapes, const cluster& machine, const step_work& work,
          std::size_t optimizer, const planned_layout& layout);

  [[nodiscard]] planned_step result() const;

 private:
  void add_units();
  void add_tables();

  [[nodiscard]] planned_memory memory() const;
  /// The root, which is always in use, and the two largest adjacent units.
  [[nodiscard]] std::size_t in_use(whole_and_part unit_bytes::*what) const;

  /// The number of gathers, or reductions, in a pass: one for each unit.
  [[nodiscard]] double operations() const;

  [[nodiscard]] whole_and_part cut(std::size_t count, std::size_t element) const noexcept {
    return {count * element, part_of(count, shards_, element)};
  }
  [[nodiscard]] bool is_table(const planned_parameter& each) const noexcept {
    return each.rows == table_rows::of_a_batch && machine_.ranks > 1;
  }
  /// Whether the ranks that share the state are on several hosts.
  [[nodiscard]] bool crosses() const noexcept {
    return machine_.hosts > 1 && machine_.ranks / layout_.copies > machine_.ranks_a_host();
  }
  /// Seconds of a ring. It visits ranks host by host, so a host's link carries it once in each
  /// direction; `at_a_time` rings share the link.
  [[nodiscard]] double time(double bytes, double rounds, bool over_network,
                            int at_a_time) const noexcept;
  static void add(planned_step& step, std::string axis, double bytes, double seconds);

  const model_shapes& shapes_;
  const cluster& machine_;
  const step_work& work_;
  const std::size_t optimizer_;
  const planned_layout& layout_;
  std::size_t shards_;
  std::vector<unit_bytes> units_;
  unit_bytes total_;
  planned_memory tables_;
  double table_traffic_ = 0;
};

}  // namespace parx::detail
