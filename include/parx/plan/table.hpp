// A plan as a table for a terminal or in Markdown. The last column says what limits each layout.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/core/formatted.hpp>
#include <parx/core/text_table.hpp>
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
    const std::size_t lacking = step.memory.total() - machine.memory_of_rank();
    return formatted("does not fit: {} too much", readable_bytes(lacking));
  }
  const double waits = step.seconds - step.compute - step.optimizer - step.bubble;
  if (waits > step.compute) return "waits for the network most of the time";
  const double bubble = 100 * step.bubble / step.seconds, percent = 100 * waits / step.seconds;
  std::string said;
  if (bubble >= 1) {
    said = formatted("idle {:.0f} % in the bubble of {} stages", bubble, step.layout.how.pp);
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
  return {to_string(step.layout.how),
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

/// The steps to show: all, or if none fits the smallest.
[[nodiscard]] inline std::vector<planned_step> shown_of(const training_plan& plan) {
  const bool any_fits = !plan.steps.empty() && plan.steps.front().fits;
  if (any_fits || plan.steps.empty()) return plan.steps;
  return {*std::min_element(plan.steps.begin(), plan.steps.end(), [](const auto& a, const auto& b) {
    return a.memory.total() < b.memory.total();
  })};
}

/// What would make `step` fit, which does not.
[[nodiscard]] inline std::string remedies_of(const planned_step& step, const cluster& machine) {
  const planned_memory& m = step.memory;
  const std::size_t has = machine.memory_of_rank(), state = m.total() - m.activations;
  const auto ranks_a_host = static_cast<std::size_t>(machine.ranks_a_host());
  std::string text = formatted("hosts of {}", readable_bytes(m.total() * ranks_a_host));
  const auto hosts = static_cast<std::size_t>(machine.hosts);
  for (std::size_t more = hosts + 1; has > 0 && more <= static_cast<std::size_t>(machine.ranks);
       ++more) {
    if (static_cast<std::size_t>(machine.ranks) % more != 0) continue;
    if (has * ranks_a_host / (static_cast<std::size_t>(machine.ranks) / more) < m.total()) continue;
    text += formatted(", the same ranks on {} hosts", more);
    break;
  }
  if (state < has) {
    text += formatted(
        ", or {} of activations instead of {}: a smaller batch, or activations computed again in "
        "backward",
        readable_bytes(has - state), readable_bytes(m.activations));
  } else if (m.activations > 0) {
    text += formatted(
        ". A smaller batch is not enough: without activations it takes {}, and a rank has {}; more "
        "ranks or a smaller model",
        readable_bytes(state), readable_bytes(has));
  }
  return text;
}

/// What there is to say below the table: where no layout fits, what would make the smallest fit.
[[nodiscard]] inline std::string conclusion_of(const training_plan& plan) {
  if (plan.steps.empty() || plan.steps.front().fits) return "";
  const planned_step smallest = shown_of(plan).front();
  return formatted("None of {} layout{} fits; {} takes the least memory. What would fit: {}.\n",
                   plan.steps.size(), plan.steps.size() == 1 ? "" : "s",
                   to_string(smallest.layout.how), remedies_of(smallest, plan.machine));
}

}  // namespace detail

/// Aligned columns; all figures are those of one rank and one step. If nothing fits, the smallest
/// layout and what would make it fit.
[[nodiscard]] inline std::string to_text(const training_plan& plan) {
  std::vector<std::string> headings(detail::plan_columns.begin(), detail::plan_columns.end());
  for (std::size_t column = 0; column < headings.size(); ++column) {
    if ((column >= 1 && column <= 6) || column == 8) headings[column].insert(0, ">");  // numbers
  }
  text_table table(std::move(headings));
  for (const planned_step& each : detail::shown_of(plan)) {
    table.add(detail::row_of(each, plan.machine));
  }
  return detail::title_of(plan) + "\n" + table.text() + detail::conclusion_of(plan);
}

/// The plan as a table of Markdown.
[[nodiscard]] inline std::string to_markdown(const training_plan& plan) {
  std::string text = detail::title_of(plan) + "\n\n";
  const auto line = [&](const auto& cells) {
    for (const auto& cell : cells) text += formatted("| {} ", cell);
    text += "|\n";
  };
  line(detail::plan_columns);
  line(std::array<const char*, 10>{"---", "--:", "--:", "--:", "--:", "--:", "--:", "---",
                                   "--:", "---"});
  for (const planned_step& each : detail::shown_of(plan)) line(detail::row_of(each, plan.machine));
  const std::string conclusion = detail::conclusion_of(plan);
  return conclusion.empty() ? text : text + "\n" + conclusion;
}

}  // namespace parx
