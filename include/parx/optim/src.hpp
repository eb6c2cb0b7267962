// The compiled part of optim, for parx/src.hpp.
#pragma once

#include <parx/optim/detail/lr_schedule_impl.hpp>
#include <parx/optim/instances.hpp>

namespace parx::inline PARX_ABI::optim {
PARX_OPTIM_INSTANCES(, float)
PARX_OPTIM_INSTANCES(, double)
}  // namespace parx
