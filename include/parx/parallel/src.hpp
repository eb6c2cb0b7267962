// The compiled part of parallel, for parx/src.hpp.
#pragma once

#include <parx/parallel/detail/any_parallel_impl.hpp>
#include <parx/parallel/instances.hpp>
#include <parx/pipeline/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_PARALLEL_INSTANCES(, float)
PARX_PARALLEL_INSTANCES(, double)
}  // namespace parx
