// The template instances of parallel in the compiled form (see parx/src.hpp): what a layout becomes
// is compiled once, whatever the model.
#pragma once

#include <parx/parallel/any_parallel.hpp>

#define PARX_PARALLEL_INSTANCES(form, T) form template class any_parallel<T>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_PARALLEL_INSTANCES(extern, float)
PARX_PARALLEL_INSTANCES(extern, double)
}  // namespace parx
#endif
