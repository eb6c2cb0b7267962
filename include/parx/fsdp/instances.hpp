// The template instances of fsdp in the compiled form (see parx/src.hpp).
#pragma once

#include <parx/autograd/instances.hpp>
#include <parx/fsdp/any_fsdp.hpp>
#include <parx/nn/any_module.hpp>

#define PARX_FSDP_INSTANCES(form, T)                           \
  form template class nn::module_functions<nn::any_module<T>>; \
  form template class any_fsdp<nn::any_module<T>>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_FSDP_INSTANCES(extern, float)
PARX_FSDP_INSTANCES(extern, double)
}  // namespace parx
#endif
