// The compiled part of ddp, for parx/src.hpp.
#pragma once

#include <parx/ddp/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_DDP_INSTANCES()
}  // namespace parx
