// relu, gelu, silu, tanh, sigmoid: element by element. linear and conv2d can apply some of them to
// their results.
#pragma once

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/autograd/ops/detail/element_wise.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

template <typename Function, typename T>
[[nodiscard]] variable<T> activate(const variable<T>& x, saved_value what) {
  return element_wise(
      x, what, [](auto v) { return value_of<Function>(v); },
      [](auto v) { return slope_of<Function>(v); });
}

}  // namespace detail

/// max(x, 0); the derivative at 0 is 0.
template <typename T>
[[nodiscard]] variable<T> relu(const variable<T>& x) {
  return detail::activate<detail::relu_function<arithmetic_type<T>>>(x,
                                                                     detail::saved_value::output);
}

/// The hyperbolic tangent.
template <typename T>
[[nodiscard]] variable<T> tanh(const variable<T>& x) {
  return detail::element_wise(
      x, detail::saved_value::output, [](auto v) { return detail::vector_tanh(v); },
      [](auto y) { return detail::simd::fma(decltype(y)(-y), y, detail::all_of<decltype(y)>(1)); });
}

/// 1 / (1 + exp(-x))
template <typename T>
[[nodiscard]] variable<T> sigmoid(const variable<T>& x) {
  return detail::element_wise(
      x, detail::saved_value::output, [](auto v) { return detail::vector_sigmoid(v); },
      [](auto y) { return y * (T(1) - y); });
}

/// x sigmoid(x), also called swish. Elfwing, Uchibe, Doya (arXiv 1702.03118).
template <typename T>
[[nodiscard]] variable<T> silu(const variable<T>& x) {
  return detail::activate<detail::silu_function<arithmetic_type<T>>>(x, detail::saved_value::input);
}

enum class gelu_form {
  erf,   ///< x Phi(x), exact
  tanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2
};

/// Hendrycks, Gimpel: Gaussian Error Linear Units (arXiv 1606.08415).
template <typename T>
[[nodiscard]] variable<T> gelu(const variable<T>& x, gelu_form form = gelu_form::erf) {
  if (form == gelu_form::tanh) {
    return detail::activate<detail::gelu_tanh_function<arithmetic_type<T>>>(
        x, detail::saved_value::input);
  }
  return detail::activate<detail::gelu_function<arithmetic_type<T>>>(x, detail::saved_value::input);
}

}  // namespace parx
