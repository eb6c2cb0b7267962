// The compiled part of pipeline, for parx/src.hpp.
#pragma once

#include <parx/pipeline/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_PIPELINE_INSTANCES(, float)
PARX_PIPELINE_INSTANCES(, double)
}  // namespace parx
