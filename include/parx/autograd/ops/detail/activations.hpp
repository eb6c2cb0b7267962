// The activation functions on packets (tensor/packet.hpp), each as a value and a slope.
//
// both(x).slope is the derivative at x; relu's also accepts relu(x) as its argument. A fused
// multiply-add is written as simd::fma, never left to the compiler: see vector_math.hpp.
#pragma once

#include <cstddef>

#include <parx/tensor/vector_math.hpp>

namespace parx::inline PARX_ABI {

/// The activation functions that linear and conv2d can apply to their results.
enum class activation { none, relu, gelu, gelu_tanh, silu };

namespace detail {

template <typename V>
struct value_and_slope {
  V value, slope;
};

template <typename T>
struct identity_function {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V x) {
    return {x, all_of<V>(1)};
  }
};

template <typename T>
struct relu_function {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V x) {
    return {x < V{} ? V{} : x, x > V{} ? all_of<V>(1) : V{}};
  }
};

/// x Phi(x); the slope is Phi(x) + x phi(x).
template <typename T>
struct gelu_function {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V x) {
    constexpr T density = T(0.3989422804014327);  // 1 / sqrt(2 pi)
    const normal_distribution<V> normal(x);
    return {x * normal.cumulative,
            simd::fma(V(x * density), normal.scaled_density, normal.cumulative)};
  }
};

/// x h with h = (1 + tanh(scale (x + cubic x^3))) / 2
template <typename T>
struct gelu_tanh_function {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V x) {
    constexpr T scale = T(0.7978845608028654);  // sqrt(2 / pi)
    constexpr T cubic = T(0.044715);
    const V one = all_of<V>(1), square = x * x;
    const V t = vector_tanh<V>(x * scale * simd::fma(square, all_of<V>(cubic), one));
    const V inner = simd::fma(square, all_of<V>(3 * cubic), one) * scale;
    const V half = (one + t) * T(0.5);
    return {x * half, simd::fma(V(x * T(0.5) * simd::fma(V(-t), t, one)), inner, half)};
  }
};

/// x / (1 + exp(-x))
template <typename T>
struct silu_function {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V x) {
    const V one = all_of<V>(1), s = vector_sigmoid<V>(x);
    return {x * s, s * simd::fma(x, V(one - s), one)};
  }
};

/// The value alone, or the slope: the compiler leaves out the other.
template <typename Function, typename V>
[[nodiscard, gnu::always_inline]] inline V value_of(V x) {
  return Function::both(x).value;
}
template <typename Function, typename V>
[[nodiscard, gnu::always_inline]] inline V slope_of(V x) {
  return Function::both(x).slope;
}

/// y = f(z). y may be z.
template <typename Function, typename T>
void activate_values(std::size_t count, const T* z, T* y) {
  for_each_packet<T>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
    store_packet(y + i, value_of<Function>(load_packet(z + i, left...)), left...);
  });
}
/// y = f(y) and slope = f'(y).
template <typename Function, typename T>
void activate_and_derive(std::size_t count, T* y, T* slope) {
  for_each_packet<T>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
    const auto result = Function::both(load_packet(y + i, left...));
    store_packet(y + i, result.value, left...);
    store_packet(slope + i, result.slope, left...);
  });
}
/// sum += values.
template <typename T>
void add_values(std::size_t count, const T* values, T* sum) {
  for_each_packet<T>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
    store_packet(sum + i, load_packet(sum + i, left...) + load_packet(values + i, left...),
                 left...);
  });
}
/// dz = upstream f'(saved).
template <typename Function, typename T>
void multiply_by_slope(std::size_t count, const T* upstream, const T* saved, T* dz) {
  for_each_packet<T>(count, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
    store_packet(dz + i,
                 load_packet(upstream + i, left...) *
                     slope_of<Function>(load_packet(saved + i, left...)),
                 left...);
  });
}

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
