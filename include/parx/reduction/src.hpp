// The compiled part of reduction, for parx/src.hpp.
#pragma once

#include <parx/reduction/detail/gradient_reducer_impl.hpp>
#include <parx/reduction/detail/reduction_group_impl.hpp>
#include <parx/reduction/detail/reduction_state_impl.hpp>
