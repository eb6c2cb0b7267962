// The networks beside TCP with which parx's own programs can be started (PARX_TRANSPORT).
#pragma once

#ifdef PARX_HAS_UCX  // CMake has found UCX's headers
#include <parx/transport/ucx.hpp>
#endif
