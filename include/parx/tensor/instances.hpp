// The template instances of the compiled form (see parx/src.hpp): add one by a line here.
#pragma once

#include <cstddef>

#include <parx/tensor/matmul.hpp>
#include <parx/tensor/tensor.hpp>

#define PARX_TENSOR_INSTANCES(form, T)                                                         \
  form template void gemm<T>(op, op, std::size_t, std::size_t, std::size_t, T, const T*,       \
                             std::size_t, const T*, std::size_t, T, T*, std::size_t, const T*, \
                             product_finish<T>);                                               \
  form template void batched_gemm<T>(op, const tensor<T>&, op, const tensor<T>&, T,            \
                                     const tensor<T>&, dtype);                                 \
  form template tensor<T> matmul<T>(const tensor<T>&, const tensor<T>&, call_site, dtype);     \
  form template class tensor<T>;

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_TENSOR_INSTANCES(extern, float)
PARX_TENSOR_INSTANCES(extern, double)
}  // namespace parx
#endif
