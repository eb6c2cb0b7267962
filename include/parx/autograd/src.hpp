// The compiled part of autograd, for parx/src.hpp.
#pragma once

#include <parx/autograd/detail/anomaly_impl.hpp>
#include <parx/autograd/detail/engine_impl.hpp>
#include <parx/autograd/detail/loss_watch_impl.hpp>
#include <parx/autograd/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_AUTOGRAD_INSTANCES(, float)
PARX_AUTOGRAD_INSTANCES(, double)
PARX_IMAGE_INSTANCES(, float)
}  // namespace parx
