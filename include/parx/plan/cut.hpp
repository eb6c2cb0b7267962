// cut: which blocks of a model are which stage.
//
// Pure functions. A cut is the first block of each stage, ascending, from 0.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI {

/// The cut whose heaviest stage is as light as can be, each stage with at least one block. A weight
/// is anything that adds up: parameters, or measured seconds. Throws usage_error for more stages
/// than blocks.
[[nodiscard]] std::vector<std::size_t> cut_by_weight(std::span<const double> weights,
                                                     std::size_t stages);

/// Throws usage_error for a cut by hand that is none.
void check_cut(std::span<const std::size_t> cut, std::size_t stages, std::size_t blocks);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/cut_impl.hpp>
#endif
