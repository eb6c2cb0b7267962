// The mixed precision chapter: autocast, which computes matrix products in lower precision, and
// grad_scaler, which float16 also needs.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/amp/grad_scaler.hpp>    // IWYU pragma: export
#include <parx/autograd/autocast.hpp>  // IWYU pragma: export
