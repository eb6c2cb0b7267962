// require_fits: refuses a layout that does not fit into memory, before anything is allocated.
#pragma once

#include <cstddef>

#include <parx/plan/plan.hpp>

namespace parx::inline PARX_ABI {

/// Local. Throws usage_error unless `layout` fits; the error says what needs how much, and which
/// layouts would fit. A caller that does not know the optimizer or the batch leaves optimizer_bytes
/// and `work` at 0. With equal arguments the result is the same on all ranks.
void require_fits(const model_shapes& shapes, const cluster& machine, const plan_layout& layout,
                  const step_work& work = {}, std::size_t optimizer_bytes = 0);

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/plan/detail/require_fits_impl.hpp>
#endif
