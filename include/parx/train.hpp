// L10: the training loop with evaluation, logs and checkpoints. parx_report draws a run's logs.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/ddp.hpp>                 // IWYU pragma: export
#include <parx/train/announce.hpp>     // IWYU pragma: export
#include <parx/train/callbacks.hpp>    // IWYU pragma: export
#include <parx/train/evaluation.hpp>   // IWYU pragma: export
#include <parx/train/explain.hpp>      // IWYU pragma: export
#include <parx/train/meter.hpp>        // IWYU pragma: export
#include <parx/train/options.hpp>      // IWYU pragma: export
#include <parx/train/precision.hpp>    // IWYU pragma: export
#include <parx/train/record.hpp>       // IWYU pragma: export
#include <parx/train/run_log.hpp>      // IWYU pragma: export
#include <parx/train/run_plan.hpp>     // IWYU pragma: export
#include <parx/train/state.hpp>        // IWYU pragma: export
#include <parx/train/tensorboard.hpp>  // IWYU pragma: export
#include <parx/train/trainer.hpp>      // IWYU pragma: export
#include <parx/train/usage.hpp>        // IWYU pragma: export
#include <parx/train/wrapped_model.hpp>  // IWYU pragma: export
