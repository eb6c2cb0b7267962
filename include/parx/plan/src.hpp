// The compiled part of plan, for parx/src.hpp.
#pragma once

#include <parx/plan/detail/plan_impl.hpp>
#include <parx/plan/detail/stages_impl.hpp>
#include <parx/plan/detail/table_impl.hpp>
