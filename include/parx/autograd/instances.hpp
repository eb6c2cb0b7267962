// The template instances of the compiled form (see parx/src.hpp): add one by a line here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <parx/autograd/loss.hpp>
#include <parx/autograd/ops.hpp>
#include <parx/autograd/parameter.hpp>
#include <parx/autograd/variable.hpp>
#include <parx/tensor/instances.hpp>

#define PARX_AUTOGRAD_INSTANCES(form, T) \
  form template class detail::node<T>; \
  form template class detail::leaf<T>; \
  form template class detail::saved<T>; \
  form template class detail::product_operand<T>; \
  form template class variable<T>; \
  form template class parameter<T>; \
  form template struct weighted_loss<T>; \
  form template variable<T> linear<T>(const variable<T>&, const variable<T>&, const variable<T>&, \
                                      activation, weight_layout, \
                                      std::shared_ptr<input_gradient_reduction<T>>, call_site); \
  form template weighted_loss<T> cross_entropy<T, std::int64_t>( \
      const variable<T>&, const tensor<std::int64_t>&, const cross_entropy_options&, call_site); \
  form template weighted_loss<T> cross_entropy<T, std::int32_t>( \
      const variable<T>&, const tensor<std::int32_t>&, const cross_entropy_options&, call_site); \
  form template weighted_loss<T> mse<T>(const variable<T>&, const variable<T>&, \
                                        std::span<const float>, call_site); \
  form template variable<T> relu<T>(const variable<T>&); \
  form template variable<T> tanh<T>(const variable<T>&); \
  form template variable<T> sigmoid<T>(const variable<T>&); \
  form template variable<T> silu<T>(const variable<T>&); \
  form template variable<T> gelu<T>(const variable<T>&, gelu_form); \
  form template variable<T> softmax<T>(const variable<T>&, int, call_site); \
  form template variable<T> log_softmax<T>(const variable<T>&, int, call_site); \
  form template variable<T> reshape<T>(const variable<T>&, const shape&, call_site); \
  form template variable<T> flatten<T>(const variable<T>&, int, call_site); \
  form template variable<T> permute<T>(const variable<T>&, std::span<const int>, call_site); \
  form template variable<T> sum<T>(const variable<T>&, const axis_list&, reduced_axes, call_site); \
  form template variable<T> mean<T>(const variable<T>&, const axis_list&, reduced_axes, call_site);

// Of images: for float alone, since few train them in double, and these are long.
#define PARX_IMAGE_INSTANCES(form, T) \
  form template variable<T> conv2d<T>(const variable<T>&, const variable<T>&, const variable<T>&, \
                                      const conv2d_options&, call_site); \
  form template variable<T> max_pool2d<T>(const variable<T>&, const max_pool2d_options&, call_site);

#ifdef PARX_SEPARATE_COMPILATION
namespace parx::inline PARX_ABI {
PARX_AUTOGRAD_INSTANCES(extern, float)
PARX_AUTOGRAD_INSTANCES(extern, double)
PARX_IMAGE_INSTANCES(extern, float)
}  // namespace parx
#endif
