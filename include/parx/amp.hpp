// The mixed precision chapter: autocast, the lower precision of matrix products, and grad_scaler,
// which float16 needs besides.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/amp/grad_scaler.hpp>     // IWYU pragma: export
#include <parx/autograd/autocast.hpp>  // IWYU pragma: export
