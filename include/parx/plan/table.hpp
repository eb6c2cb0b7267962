// A plan as a table for a terminal or in Markdown. The last column says what limits each layout.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/plan/plan.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// "6.44 GB", three digits.
[[nodiscard]] inline std::string readable_bytes(double bytes) {
  constexpr std::array units{"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < units.size(); ++unit) bytes /= 1000;
  const int digits = unit == 0 || bytes >= 99.95 ? 0 : bytes < 9.995 ? 2 : 1;
  return formatted("{:.{}f} {}", bytes, digits, units[unit]);
}
[[nodiscard]] inline std::string readable_bytes(std::size_t bytes) {
  return readable_bytes(static_cast<double>(bytes));
}

[[nodiscard]] inline std::string readable_seconds(double seconds) {
  return seconds < 1 ? formatted("{:.3g} ms", seconds * 1e3) : formatted("{:.3g} s", seconds);
}

inline constexpr std::array<const char*, 10> plan_columns{
    "layout",  "memory",      "values",         "gradients", "optimizer",
    "working", "activations", "sent in a step", "step",      "why"};

/// What limits the layout.
[[nodiscard]] inline std::string reason(const planned_step& step, const cluster& machine) {
  if (!step.fits) {
    return formatted("does not fit: a rank has {}", readable_bytes(machine.memory_of_rank()));
  }
  const double waits = step.seconds - step.compute - step.optimizer - step.bubble;
  if (waits > step.compute) return "waits for the network most of the time";
  const double bubble = 100 * step.bubble / step.seconds, percent = 100 * waits / step.seconds;
  std::string said;
  if (bubble >= 1) {
    said = formatted("idle {:.0f} % in the bubble of {} stages", bubble, step.layout.pp);
  }
  if (percent >= 1) {
    said += formatted("{}waits for other ranks {:.0f} % of the time", said.empty() ? "" : ", ",
                      percent);
  }
  return said.empty() ? "computes all the time" : said;
}

[[nodiscard]] inline std::vector<std::string> row_of(const planned_step& step,
                                                     const cluster& machine) {
  const planned_memory& m = step.memory;
  std::string axes;
  for (const planned_traffic& each : step.traffic) {
    axes += formatted("{}{} {}", axes.empty() ? "" : ", ", each.axis, readable_bytes(each.bytes));
  }
  return {step.layout.name,
          readable_bytes(m.total()),
          readable_bytes(m.values),
          readable_bytes(m.gradients),
          readable_bytes(m.optimizer),
          readable_bytes(m.working),
          readable_bytes(m.activations),
          axes.empty() ? "nothing" : axes,
          readable_seconds(step.seconds),
          reason(step, machine)};
}

[[nodiscard]] inline std::string title_of(const training_plan& plan) {
  const cluster& machine = plan.machine;
  return formatted(
      "{:.4g} million parameters on {} rank{} of {} host{}, {} of memory and {:.3g} GFLOP/s a rank",
      static_cast<double>(plan.parameters) / 1e6, machine.ranks, machine.ranks == 1 ? "" : "s",
      machine.hosts, machine.hosts == 1 ? "" : "s", readable_bytes(machine.memory_of_rank()),
      machine.flops / 1e9);
}

}  // namespace detail

/// Aligned columns; all figures are those of one rank and one step.
[[nodiscard]] inline std::string to_text(const training_plan& plan) {
  std::vector<std::vector<std::string>> rows{
      {detail::plan_columns.begin(), detail::plan_columns.end()}};
  for (const planned_step& each : plan.steps) {
    rows.push_back(detail::row_of(each, plan.machine));
  }
  std::string text = detail::title_of(plan) + "\n";
  for (const auto& row : rows) {
    for (std::size_t column = 0; column < row.size(); ++column) {
      std::size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      const bool is_number = (column >= 1 && column <= 6) || column == 8;
      const bool is_last = column + 1 == row.size();
      text += is_number ? formatted("{:>{}}", row[column], width)
              : is_last ? row[column]
                        : formatted("{:<{}}", row[column], width);
      text += is_last ? "\n" : "  ";
    }
  }
  return text;
}

[[nodiscard]] inline std::string to_markdown(const training_plan& plan) {
  std::string text = detail::title_of(plan) + "\n\n";
  const auto line = [&](const auto& cells) {
    for (const auto& cell : cells) text += formatted("| {} ", cell);
    text += "|\n";
  };
  line(detail::plan_columns);
  line(std::array<const char*, 10>{"---", "--:", "--:", "--:", "--:", "--:", "--:", "---",
                                   "--:", "---"});
  for (const planned_step& each : plan.steps) line(detail::row_of(each, plan.machine));
  return text;
}

}  // namespace parx
