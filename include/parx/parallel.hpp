// L10: one face for all layouts: a training program is written once.
//
//   parx::parallel model{net, world, parx::layout::parse("pp=2,tp=2,zero=1")};
#pragma once

#include <parx/checkpoint.hpp>         // IWYU pragma: export
#include <parx/comm.hpp>               // IWYU pragma: export
#include <parx/ddp/raw.hpp>            // IWYU pragma: export
#include <parx/launch.hpp>             // IWYU pragma: export
#include <parx/mesh.hpp>               // IWYU pragma: export
#include <parx/parallel/automatic.hpp>  // IWYU pragma: export
#include <parx/parallel/explain.hpp>   // IWYU pragma: export
#include <parx/parallel/generate.hpp>  // IWYU pragma: export
#include <parx/parallel/models.hpp>    // IWYU pragma: export
#include <parx/parallel/parallel.hpp>  // IWYU pragma: export
#include <parx/plan/layout.hpp>        // IWYU pragma: export
