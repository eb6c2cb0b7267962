// The compiled part of fsdp, for parx/src.hpp.
#pragma once

#include <parx/fsdp/detail/sharded_units_impl.hpp>
