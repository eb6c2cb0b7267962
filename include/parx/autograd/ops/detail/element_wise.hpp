// element_wise: y = f(x) element by element, of tensors and variables. A new operation is a
// function and its derivative, both of packets (tensor/packet.hpp).
//
// Numbers of 16 bits are computed as floats and rounded once.
#pragma once

#include <utility>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail {

/// What an operation keeps for its derivative.
enum class saved_value { input, output };

/// f(x) of a tensor.
template <typename T, typename Function>
[[nodiscard]] tensor<T> apply(const tensor<T>& x, Function f) {
  if constexpr (is_half<T>) {
    return map(on_packets(f), x.template cast<float>()).template cast<T>();
  } else {
    return map(on_packets(f), x);
  }
}

/// The variable y = f(x), with dx = upstream * derivative(saved), where `saved` is x or y.
template <typename T, typename Derivative>
[[nodiscard]] variable<T> with_derivative(const variable<T>& x, tensor<T> y, saved_value what,
                                          Derivative derivative) {
  const saved<T> kept(what == saved_value::input ? x.value() : y);
  return differentiable(
      std::move(y),
      [kept, derivative](const tensor<T>& upstream, grad_sink<T> dx) {
        if constexpr (is_half<T>) {
          dx.map([=](float u, float v) { return u * derivative(v); }, upstream, kept.values());
        } else {
          dx.map(on_packets([=](auto u, auto v) { return u * derivative(v); }), upstream,
                 kept.values());
        }
      },
      x);
}

/// f as an operation on variables and, without its derivative, on tensors.
template <typename T, typename Function, typename Derivative>
[[nodiscard]] variable<T> element_wise(const variable<T>& x, saved_value what, Function f,
                                       Derivative derivative) {
  return with_derivative(x, apply(x.value(), f), what, derivative);
}
template <typename T, typename Function, typename Derivative>
[[nodiscard]] tensor<T> element_wise(const tensor<T>& x, saved_value /*what*/, Function f,
                                     Derivative /*derivative*/) {
  return apply(x, f);
}

/// The same with a derivative of x, or of y.
template <typename X, typename Function, typename Derivative>
[[nodiscard]] auto of_input(const X& x, Function f, Derivative derivative) {
  return element_wise(x, saved_value::input, f, derivative);
}
template <typename X, typename Function, typename Derivative>
[[nodiscard]] auto of_output(const X& x, Function f, Derivative derivative) {
  return element_wise(x, saved_value::output, f, derivative);
}

}  // namespace parx::detail
