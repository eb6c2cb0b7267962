// Template instances that the compiled library contains (see parx/src.hpp): add one line for each.
#pragma once

#include <parx/autograd/parameter_handle.hpp>
#include <parx/ddp/gradient_buckets.hpp>

#define PARX_DDP_INSTANCES(form) \
  form template class detail::gradient_buckets<parameter_handle>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_DDP_INSTANCES(extern)
}  // namespace parx
#endif
