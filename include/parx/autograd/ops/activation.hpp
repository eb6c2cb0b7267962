// relu, gelu, tanh, sigmoid: element by element.
#pragma once

#include <numbers>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/tensor/detail/math.hpp>

namespace parx {

namespace detail {

/// y = f(x), with dx = upstream * derivative(saved), where `saved` is x or y.
enum class saved_value { input, output };

template <typename T, typename Function, typename Derivative>
[[nodiscard]] variable<T> activation(const variable<T>& x, saved_value what, Function f,
                                     Derivative derivative) {
  tensor<T> y = map(f, x.value());
  const saved<T> kept(what == saved_value::input ? x.value() : y);
  return differentiable(
      std::move(y),
      [kept, derivative](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.map([=](T u, T v) { return u * derivative(v); }, upstream, kept.values());
      },
      x);
}

}  // namespace detail

/// max(x, 0); the derivative at 0 is 0.
template <typename T>
[[nodiscard]] variable<T> relu(const variable<T>& x) {
  return detail::activation(
      x, detail::saved_value::output, [](T v) { return v < T(0) ? T(0) : v; },
      [](T y) { return y > T(0) ? T(1) : T(0); });
}

template <typename T>
[[nodiscard]] variable<T> tanh(const variable<T>& x) {
  return detail::activation(
      x, detail::saved_value::output, [](T v) { return detail::vector_tanh(v); },
      [](T y) { return T(1) - y * y; });
}

/// 1 / (1 + exp(-x))
template <typename T>
[[nodiscard]] variable<T> sigmoid(const variable<T>& x) {
  return detail::activation(
      x, detail::saved_value::output, [](T v) { return detail::vector_sigmoid(v); },
      [](T y) { return y * (T(1) - y); });
}

enum class gelu_form {
  erf,   ///< x Phi(x), exact
  tanh,  ///< 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as in GPT-2
};

/// Hendrycks, Gimpel: Gaussian Error Linear Units (arXiv 1606.08415).
template <typename T>
[[nodiscard]] variable<T> gelu(const variable<T>& x, gelu_form form = gelu_form::erf) {
  if (form == gelu_form::tanh) {
    constexpr T scale = T(0.7978845608028654);  // sqrt(2 / pi)
    constexpr T cubic = T(0.044715);
    return detail::activation(
        x, detail::saved_value::input,
        [](T v) {
          return T(0.5) * v * (T(1) + detail::vector_tanh(scale * (v + cubic * v * v * v)));
        },
        [](T v) {
          const T t = detail::vector_tanh(scale * (v + cubic * v * v * v));
          const T slope = scale * (T(1) + T(3) * cubic * v * v);
          return T(0.5) * (T(1) + t) + T(0.5) * v * (T(1) - t * t) * slope;
        });
  }
  constexpr T root_half = T(1) / std::numbers::sqrt2_v<T>;
  constexpr T density = T(0.3989422804014327);  // 1 / sqrt(2 pi)
  return detail::activation(
      x, detail::saved_value::input,
      [](T v) { return T(0.5) * v * (T(1) + detail::vector_erf(v * root_half)); },
      [](T v) {
        return T(0.5) * (T(1) + detail::vector_erf(v * root_half)) +
               v * density * detail::vector_exp(T(-0.5) * v * v);
      });
}

}  // namespace parx
