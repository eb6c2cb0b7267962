// The compiled part of fsdp, for parx/src.hpp.
#pragma once

#include <parx/fsdp/detail/part_sum_impl.hpp>
#include <parx/fsdp/detail/row_traffic_impl.hpp>
#include <parx/fsdp/detail/shard_groups_impl.hpp>
#include <parx/fsdp/detail/sharded_units_impl.hpp>
#include <parx/fsdp/detail/unit_gradients_impl.hpp>
#include <parx/fsdp/detail/unit_plan_impl.hpp>
#include <parx/fsdp/detail/unit_uses_impl.hpp>
