// L8: tensor parallelism: matrices of a model cut over the ranks of an axis. Saving them,
// <parx/checkpoint.hpp>, is included separately, to keep compile times low; <parx/train.hpp> brings
// it.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/comm.hpp>                             // IWYU pragma: export
#include <parx/launch.hpp>                           // IWYU pragma: export
#include <parx/mesh.hpp>                             // IWYU pragma: export
#include <parx/nn/loss.hpp>                          // IWYU pragma: export
#include <parx/tensor_parallel/axis.hpp>             // IWYU pragma: export
#include <parx/tensor_parallel/explain.hpp>          // IWYU pragma: export
#include <parx/tensor_parallel/parallelize.hpp>      // IWYU pragma: export
#include <parx/tensor_parallel/plan.hpp>             // IWYU pragma: export
#include <parx/tensor_parallel/plans.hpp>            // IWYU pragma: export
