// The template instances of nn in the compiled form (see parx/src.hpp).
#pragma once

#include <parx/autograd/instances.hpp>
#include <parx/nn/conv.hpp>
#include <parx/nn/embedding.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/norm.hpp>

#define PARX_NN_INSTANCES(form, T) \
  form template class module<linear<T>>; \
  form template class linear<T>; \
  form template class module<embedding<T>>; \
  form template class embedding<T>; \
  form template class module<layer_norm<T>>; \
  form template class layer_norm<T>; \
  form template class module<conv2d<T>>; \
  form template class conv2d<T>; \
  form template class detail::parameter_of<T>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI::nn {
PARX_NN_INSTANCES(extern, float)
}  // namespace parx
#endif
