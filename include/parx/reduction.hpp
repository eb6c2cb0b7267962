// L7: when and how the gradients of a backward pass are summed over ranks: what ddp and fsdp share.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/reduction/data_parallel_wrapper.hpp>  // IWYU pragma: export
#include <parx/reduction/gradient_reducer.hpp>       // IWYU pragma: export
#include <parx/reduction/gradient_sums.hpp>          // IWYU pragma: export
#include <parx/reduction/group_axis.hpp>             // IWYU pragma: export
#include <parx/reduction/reduction_group.hpp>        // IWYU pragma: export
#include <parx/reduction/reduction_state.hpp>        // IWYU pragma: export
#include <parx/reduction/replica_sum.hpp>            // IWYU pragma: export
#include <parx/reduction/replica_tree.hpp>           // IWYU pragma: export
#include <parx/reduction/step_header.hpp>            // IWYU pragma: export
#include <parx/reduction/times.hpp>                  // IWYU pragma: export
#include <parx/reduction/training_engine.hpp>        // IWYU pragma: export
