// require_fits: refuses what memory is not there for, before any of it is allocated.
#pragma once

#include <cstddef>

#include <parx/core/check.hpp>
#include <parx/plan/plan.hpp>
#include <parx/plan/table.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error, which says what needs how much and which layout would fit, unless
/// `layout` fits. A caller that does not know what an optimizer or a batch will need leaves
/// optimizer_bytes and `work` at 0. Local; the same answer on ranks with equal arguments.
void require_fits(const model_shapes& shapes, const cluster& machine,
                         const plan_layout& layout, const step_work& work = {},
                         std::size_t optimizer_bytes = 0);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/require_fits_impl.hpp>
#endif
