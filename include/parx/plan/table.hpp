// A plan as a table for a terminal or in Markdown, with a reason for each place.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include <parx/plan/plan.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// "6.44 GB", three digits.
[[nodiscard]] std::string readable_bytes(double bytes);
[[nodiscard]] inline std::string readable_bytes(std::size_t bytes) {
  return readable_bytes(static_cast<double>(bytes));
}

/// What its time is spent on, or what it lacks.
[[nodiscard]] std::string reason(const planned_step& step, const cluster& machine);

[[nodiscard]] std::vector<std::string> row_of(const planned_step& step,
                                                     const cluster& machine);

inline constexpr std::array<const char*, 10> plan_columns{
    "layout", "memory", "values", "gradients", "optimizer", "working",
    "activations", "sent in a step", "step", "why"};

}  // namespace detail

/// Lines of columns, all of one rank and one step.
[[nodiscard]] std::string to_text(const training_plan& plan);

[[nodiscard]] std::string to_markdown(const training_plan& plan);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/table_impl.hpp>
#endif
