// L2: element types, the 16-bit floats, buffers, the loops that reduce them, exact norms.
#pragma once

#include <parx/core/version.hpp>  // first: what compiler parx needs

#include <parx/types/buffer.hpp>      // IWYU pragma: export
#include <parx/types/chunk.hpp>       // IWYU pragma: export
#include <parx/types/dtype.hpp>       // IWYU pragma: export
#include <parx/types/half.hpp>        // IWYU pragma: export
#include <parx/types/reduce.hpp>      // IWYU pragma: export
#include <parx/types/replica_range.hpp>  // IWYU pragma: export
#include <parx/types/square_sum.hpp>  // IWYU pragma: export
