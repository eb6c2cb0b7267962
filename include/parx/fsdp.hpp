// L8: parameters, gradients and optimizer state sharded over ranks. Most programs use
// parx::parallel, which has every layout. <parx/checkpoint.hpp> saves; <parx/train.hpp> brings it.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/comm.hpp>                 // IWYU pragma: export
#include <parx/fsdp/fsdp.hpp>            // IWYU pragma: export
#include <parx/fsdp/options.hpp>         // IWYU pragma: export
#include <parx/fsdp/sharded_module.hpp>  // IWYU pragma: export
#include <parx/fsdp/sharding.hpp>        // IWYU pragma: export
#include <parx/fsdp/unit_choice.hpp>     // IWYU pragma: export
#include <parx/fsdp/unit_plan.hpp>       // IWYU pragma: export
#include <parx/fsdp/unit_values.hpp>     // IWYU pragma: export
#include <parx/launch.hpp>               // IWYU pragma: export
