// The compiled part of plan, for parx/src.hpp.
#pragma once

#include <parx/plan/detail/layout_impl.hpp>
#include <parx/plan/detail/plan_impl.hpp>
