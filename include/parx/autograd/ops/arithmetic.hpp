// a + b, a - b, a * b, a / b with broadcasting, and the same with a constant: a tensor or a number.
#pragma once

#include <type_traits>

#include <parx/autograd/function.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
[[nodiscard]] variable<T> operator+(const variable<T>& a, const variable<T>& b) {
  return differentiable(
      map([](T x, T y) { return x + y; }, a.value(), b.value()),
      [](const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> db) {
        if (da.needed()) da.add_broadcast(upstream);
        if (db.needed()) db.add_broadcast(upstream);
      },
      a, b);
}

template <typename T>
[[nodiscard]] variable<T> operator-(const variable<T>& a, const variable<T>& b) {
  return differentiable(
      map([](T x, T y) { return x - y; }, a.value(), b.value()),
      [](const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> db) {
        if (da.needed()) da.add_broadcast(upstream);
        if (db.needed()) db.map([](T u) { return -u; }, upstream);
      },
      a, b);
}

template <typename T>
[[nodiscard]] variable<T> operator*(const variable<T>& a, const variable<T>& b) {
  return differentiable(
      map([](T x, T y) { return x * y; }, a.value(), b.value()),
      [x = b.requires_grad() ? a.value() : tensor<T>(),
       y = a.requires_grad() ? b.value() : tensor<T>()](const tensor<T>& upstream, grad_sink<T> da,
                                                        grad_sink<T> db) {
        const auto product = [](T u, T v) { return u * v; };
        if (da.needed()) da.map(product, upstream, y);
        if (db.needed()) db.map(product, upstream, x);
      },
      a, b);
}

template <typename T>
[[nodiscard]] variable<T> operator/(const variable<T>& a, const variable<T>& b) {
  return differentiable(
      map([](T x, T y) { return x / y; }, a.value(), b.value()),
      [x = b.requires_grad() ? a.value() : tensor<T>(), y = b.value()](
          const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> db) {
        if (da.needed()) da.map([](T u, T w) { return u / w; }, upstream, y);
        if (db.needed()) db.map([](T u, T v, T w) { return -u * v / (w * w); }, upstream, x, y);
      },
      a, b);
}

// A tensor operand is a constant.
template <typename T>
[[nodiscard]] variable<T> operator+(const variable<T>& a, const tensor<T>& b) {
  return a + variable<T>(b);
}
template <typename T>
[[nodiscard]] variable<T> operator+(const tensor<T>& a, const variable<T>& b) {
  return variable<T>(a) + b;
}
template <typename T>
[[nodiscard]] variable<T> operator-(const variable<T>& a, const tensor<T>& b) {
  return a - variable<T>(b);
}
template <typename T>
[[nodiscard]] variable<T> operator-(const tensor<T>& a, const variable<T>& b) {
  return variable<T>(a) - b;
}
template <typename T>
[[nodiscard]] variable<T> operator*(const variable<T>& a, const tensor<T>& b) {
  return a * variable<T>(b);
}
template <typename T>
[[nodiscard]] variable<T> operator*(const tensor<T>& a, const variable<T>& b) {
  return variable<T>(a) * b;
}
template <typename T>
[[nodiscard]] variable<T> operator/(const variable<T>& a, const tensor<T>& b) {
  return a / variable<T>(b);
}
template <typename T>
[[nodiscard]] variable<T> operator/(const tensor<T>& a, const variable<T>& b) {
  return variable<T>(a) / b;
}

template <typename T>
[[nodiscard]] variable<T> operator*(const variable<T>& a, std::type_identity_t<T> factor) {
  return differentiable_of_cut(
      map([=](T x) { return x * factor; }, a.value()),
      [=](const tensor<T>& upstream, grad_sink<T> da) {
        da.map([=](T u) { return u * factor; }, upstream);
      },
      a);
}
template <typename T>
[[nodiscard]] variable<T> operator*(std::type_identity_t<T> factor, const variable<T>& a) {
  return a * factor;
}
template <typename T>
[[nodiscard]] variable<T> operator/(const variable<T>& a, std::type_identity_t<T> divisor) {
  return a * (T(1) / divisor);
}
template <typename T>
[[nodiscard]] variable<T> operator-(const variable<T>& a) {
  return a * T(-1);
}

template <typename T>
[[nodiscard]] variable<T> operator+(const variable<T>& a, std::type_identity_t<T> addend) {
  return differentiable_of_cut(
      map([=](T x) { return x + addend; }, a.value()),
      [](const tensor<T>& upstream, grad_sink<T> da) { da.add(upstream); }, a);
}
template <typename T>
[[nodiscard]] variable<T> operator+(std::type_identity_t<T> addend, const variable<T>& a) {
  return a + addend;
}
template <typename T>
[[nodiscard]] variable<T> operator-(const variable<T>& a, std::type_identity_t<T> subtrahend) {
  return a + (-subtrahend);
}
template <typename T>
[[nodiscard]] variable<T> operator-(std::type_identity_t<T> minuend, const variable<T>& a) {
  return -a + minuend;
}

}  // namespace parx
