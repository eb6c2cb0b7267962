// cut: which blocks of a model form which stage. Pure.
//
// A cut is the first block of each stage, ascending, from 0.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI {

/// The cut that minimizes the weight of the heaviest stage. Each stage has at least one block. A
/// weight is anything that adds up: parameters, or measured seconds. Throws usage_error for more
/// stages than blocks.
[[nodiscard]] std::vector<std::size_t> cut_by_weight(std::span<const double> weights,
                                                     std::size_t stages);

/// Throws usage_error for an invalid cut.
void check_cut(std::span<const std::size_t> cut, std::size_t stages, std::size_t blocks);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/cut_impl.hpp>
#endif
