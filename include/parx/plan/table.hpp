// A plan as a table for a terminal or in Markdown. The last column says what limits each layout.
#pragma once

#include <cstddef>
#include <string>

#include <parx/plan/plan.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// "6.44 GB", three digits.
[[nodiscard]] std::string readable_bytes(double bytes);
[[nodiscard]] inline std::string readable_bytes(std::size_t bytes) {
  return readable_bytes(static_cast<double>(bytes));
}

}  // namespace detail

/// Aligned columns; all figures are those of one rank and one step.
[[nodiscard]] std::string to_text(const training_plan& plan);

[[nodiscard]] std::string to_markdown(const training_plan& plan);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/table_impl.hpp>
#endif
