// The compiled part of fsdp, for parx/src.hpp.
#pragma once

#include <parx/fsdp/detail/any_fsdp_impl.hpp>
#include <parx/fsdp/detail/sharded_units_impl.hpp>
#include <parx/fsdp/instances.hpp>

namespace parx::inline PARX_ABI {
PARX_FSDP_INSTANCES(, float)
PARX_FSDP_INSTANCES(, double)
}  // namespace parx
