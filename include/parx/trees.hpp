// L8: gradient-boosted trees over ranks. The same model, bit for bit, at any number of ranks and
// threads.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/trees/booster.hpp>     // IWYU pragma: export
#include <parx/trees/importance.hpp>  // IWYU pragma: export
#include <parx/trees/metrics.hpp>     // IWYU pragma: export
#include <parx/trees/model_file.hpp>  // IWYU pragma: export
#include <parx/trees/objectives.hpp>  // IWYU pragma: export
#include <parx/trees/options.hpp>     // IWYU pragma: export
#include <parx/trees/predict.hpp>     // IWYU pragma: export
#include <parx/trees/read.hpp>        // IWYU pragma: export
#include <parx/trees/shap.hpp>        // IWYU pragma: export
#include <parx/trees/table.hpp>       // IWYU pragma: export
#include <parx/trees/traffic.hpp>     // IWYU pragma: export
#include <parx/trees/tree.hpp>        // IWYU pragma: export
