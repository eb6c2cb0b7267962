// The wrappers that models.hpp declares.
#pragma once

#include <parx/models.hpp>
#include <parx/parallel/models.hpp>

namespace parx::inline PARX_ABI {
PARX_MODELS_INSTANCES()
}  // namespace parx
