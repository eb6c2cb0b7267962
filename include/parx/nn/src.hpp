// The compiled part of nn, for parx/src.hpp.
#pragma once

#include <parx/nn/detail/layer_cut_impl.hpp>
#include <parx/nn/instances.hpp>

namespace parx::inline PARX_ABI::nn {
PARX_NN_INSTANCES(, float)
}  // namespace parx
