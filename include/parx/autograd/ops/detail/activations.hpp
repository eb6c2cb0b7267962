// The activation functions as a value and a slope, for loops that the compiler vectorises.
//
// slope(x) is the derivative at x; relu's also accepts relu(x) as its argument.
#pragma once

#include <numbers>

#include <parx/tensor/math.hpp>

namespace parx::inline PARX_ABI {

/// The activation functions that linear and conv2d can apply to their results.
enum class activation { none, relu, gelu, gelu_tanh, silu };

namespace detail {

template <typename T>
struct identity_function {
  static T value(T x) { return x; }
  static T slope(T /*x*/) { return T(1); }
};

template <typename T>
struct relu_function {
  static T value(T x) { return x < T(0) ? T(0) : x; }
  static T slope(T x) { return x > T(0) ? T(1) : T(0); }
};

/// x Phi(x)
template <typename T>
struct gelu_function {
  static constexpr T root_half = T(1) / std::numbers::sqrt2_v<T>;
  static constexpr T density = T(0.3989422804014327);  // 1 / sqrt(2 pi)
  static T value(T x) { return T(0.5) * x * (T(1) + vector_erf(x * root_half)); }
  static T slope(T x) {
    return T(0.5) * (T(1) + vector_erf(x * root_half)) + x * density * vector_exp(T(-0.5) * x * x);
  }
};

/// 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
template <typename T>
struct gelu_tanh_function {
  static constexpr T scale = T(0.7978845608028654);  // sqrt(2 / pi)
  static constexpr T cubic = T(0.044715);
  static T value(T x) {
    return T(0.5) * x * (T(1) + vector_tanh(scale * (x + cubic * x * x * x)));
  }
  static T slope(T x) {
    const T t = vector_tanh(scale * (x + cubic * x * x * x));
    const T inner = scale * (T(1) + T(3) * cubic * x * x);
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * inner;
  }
};

/// x / (1 + exp(-x))
template <typename T>
struct silu_function {
  static T value(T x) { return x * vector_sigmoid(x); }
  static T slope(T x) {
    const T s = vector_sigmoid(x);
    return s * (T(1) + x * (T(1) - s));
  }
};

/// Calls body(function) with the function that `kind` names.
template <typename T, typename Body>
void with_activation(activation kind, Body&& body) {
  switch (kind) {
    case activation::none: body(identity_function<T>{}); break;
    case activation::relu: body(relu_function<T>{}); break;
    case activation::gelu: body(gelu_function<T>{}); break;
    case activation::gelu_tanh: body(gelu_tanh_function<T>{}); break;
    case activation::silu: body(silu_function<T>{}); break;
  }
}

}  // namespace detail
}  // namespace parx
