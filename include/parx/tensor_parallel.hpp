// L8: tensor parallelism: matrices of a model cut over the ranks of an axis.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/comm.hpp>                         // IWYU pragma: export
#include <parx/launch.hpp>                       // IWYU pragma: export
#include <parx/mesh.hpp>                         // IWYU pragma: export
#include <parx/tensor_parallel/algebra.hpp>      // IWYU pragma: export
#include <parx/tensor_parallel/axis.hpp>         // IWYU pragma: export
#include <parx/tensor_parallel/placement.hpp>    // IWYU pragma: export
#include <parx/tensor_parallel/transitions.hpp>  // IWYU pragma: export
