// The compiled part of plan, for parx/src.hpp.
#pragma once

#include <parx/plan/detail/cluster_impl.hpp>
#include <parx/plan/detail/cluster_of_impl.hpp>
#include <parx/plan/detail/cut_impl.hpp>
#include <parx/plan/detail/plan_impl.hpp>
#include <parx/plan/detail/require_fits_impl.hpp>
#include <parx/plan/detail/shapes_impl.hpp>
#include <parx/plan/detail/stages_impl.hpp>
#include <parx/plan/detail/table_impl.hpp>
