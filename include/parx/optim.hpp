// L5: optimizers, learning-rate schedules and gradient clipping, with PyTorch's formulas.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/optim/adamw.hpp>      // IWYU pragma: export
#include <parx/optim/clip.hpp>       // IWYU pragma: export
#include <parx/optim/ema.hpp>        // IWYU pragma: export
#include <parx/optim/group.hpp>      // IWYU pragma: export
#include <parx/optim/instances.hpp>  // IWYU pragma: export
#include <parx/optim/lr_schedule.hpp>  // IWYU pragma: export
#include <parx/optim/optimizer.hpp>  // IWYU pragma: export
#include <parx/optim/sgd.hpp>        // IWYU pragma: export
#include <parx/optim/target.hpp>     // IWYU pragma: export
