// plan: what a model needs on a cluster, and which way to train it is the fastest.
#pragma once

#include <parx/core/version.hpp>

#include <parx/plan/cluster.hpp>       // IWYU pragma: export
#include <parx/plan/cluster_of.hpp>    // IWYU pragma: export
#include <parx/plan/cut.hpp>           // IWYU pragma: export
#include <parx/plan/layout.hpp>        // IWYU pragma: export
#include <parx/plan/plan.hpp>          // IWYU pragma: export
#include <parx/plan/require_fits.hpp>  // IWYU pragma: export
#include <parx/plan/shapes.hpp>        // IWYU pragma: export
#include <parx/plan/stages.hpp>        // IWYU pragma: export
#include <parx/plan/table.hpp>         // IWYU pragma: export
#include <parx/plan/work.hpp>          // IWYU pragma: export
