// L1: element types, the 16-bit floats, buffers, and the loops that reduce them.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/types/buffer.hpp>  // IWYU pragma: export
#include <parx/types/chunk.hpp>   // IWYU pragma: export
#include <parx/types/dtype.hpp>   // IWYU pragma: export
#include <parx/types/half.hpp>    // IWYU pragma: export
#include <parx/types/reduce.hpp>  // IWYU pragma: export
