// a + b, a - b, a * b, a / b of tensors and numbers, with broadcasting.
//
// All make new contiguous tensors, but for a += b and its like, which write into a, seen by all
// that share its memory. They throw usage_error naming both shapes where these do not broadcast, in
// place to that of a. Numbers of 16 bits are computed as floats and rounded.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include <parx/core/check.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI {

/// The other operand: a tensor, or a number, which is a scalar tensor.
template <typename T>
struct tensor_operand {
  tensor<T> value;

  tensor_operand(tensor<T> all) : value(std::move(all)) {}  // NOLINT(google-explicit-*)
  template <typename Number>
  requires(std::is_arithmetic_v<Number> || std::is_same_v<Number, T>)
      tensor_operand(Number number)  // NOLINT(google-explicit-*)
      : value(tensor<T>::scalar(static_cast<T>(number))) {}
};
template <typename T>
using operand_of = std::type_identity_t<tensor_operand<T>>;

namespace detail {

/// f(a, b), a function of packets; of 16-bit and small numbers one by one.
template <typename T, typename Function>
[[nodiscard]] tensor<T> combined(const tensor<T>& a, const tensor<T>& b, Function f) {
  if constexpr (std::is_floating_point_v<T>) return map(on_packets(f), a, b);
  else return map([f](T x, T y) { return static_cast<T>(f(x, y)); }, a, b);
}

/// a = f(a, b), in place.
template <typename T, typename Function>
tensor<T>& combine(tensor<T>& a, const tensor<T>& b, Function f) {
  const bool is_same = b.data() == a.data() && b.shape() == a.shape() && b.strides() == a.strides();
  const tensor<T> other = b.memory_id() == a.memory_id() && !is_same ? b.clone() : b;
  if constexpr (std::is_floating_point_v<T>) map_into(a, on_packets(f), a, other);
  else map_into(a, [f](T x, T y) { return static_cast<T>(f(x, y)); }, a, other);
  return a;
}

template <typename T>
void require_divisors(const tensor<T>& b) {
  if constexpr (std::is_integral_v<T>) {
    const tensor<T> divisors = b.contiguous();
    require(std::find(divisors.begin(), divisors.end(), T(0)) == divisors.end(),
            "a tensor of integers is divided by 0");
  }
}

/// x / y; -x for a y of -1, so that the least integer is its own quotient instead of a trap.
template <typename T>
[[nodiscard]] T quotient(T x, T y) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  }
  return static_cast<T>(x / y);
}

}  // namespace detail

template <typename T>
[[nodiscard]] tensor<T> operator+(const tensor<T>& a, const operand_of<T>& b) {
  return detail::combined(a, b.value, [](auto x, auto y) { return x + y; });
}
template <typename T>
[[nodiscard]] tensor<T> operator-(const tensor<T>& a, const operand_of<T>& b) {
  return detail::combined(a, b.value, [](auto x, auto y) { return x - y; });
}
template <typename T>
[[nodiscard]] tensor<T> operator*(const tensor<T>& a, const operand_of<T>& b) {
  return detail::combined(a, b.value, [](auto x, auto y) { return x * y; });
}
/// Of integers: the quotient without its fraction. Throws usage_error for an integer divided by 0.
template <typename T>
[[nodiscard]] tensor<T> operator/(const tensor<T>& a, const operand_of<T>& b) {
  detail::require_divisors(b.value);
  return detail::combined(a, b.value, [](auto x, auto y) { return detail::quotient(x, y); });
}
template <typename T>
tensor<T>& operator+=(tensor<T>& a, const operand_of<T>& b) {
  return detail::combine(a, b.value, [](auto x, auto y) { return x + y; });
}
template <typename T>
tensor<T>& operator-=(tensor<T>& a, const operand_of<T>& b) {
  return detail::combine(a, b.value, [](auto x, auto y) { return x - y; });
}
template <typename T>
tensor<T>& operator*=(tensor<T>& a, const operand_of<T>& b) {
  return detail::combine(a, b.value, [](auto x, auto y) { return x * y; });
}
template <typename T>
tensor<T>& operator/=(tensor<T>& a, const operand_of<T>& b) {
  detail::require_divisors(b.value);
  return detail::combine(a, b.value, [](auto x, auto y) { return detail::quotient(x, y); });
}
template <typename T>
[[nodiscard]] tensor<T> operator+(std::type_identity_t<T> a, const tensor<T>& b) {
  return b + a;
}
template <typename T>
[[nodiscard]] tensor<T> operator-(std::type_identity_t<T> a, const tensor<T>& b) {
  return tensor<T>::scalar(a) - b;
}
template <typename T>
[[nodiscard]] tensor<T> operator*(std::type_identity_t<T> a, const tensor<T>& b) {
  return b * a;
}
template <typename T>
[[nodiscard]] tensor<T> operator/(std::type_identity_t<T> a, const tensor<T>& b) {
  return tensor<T>::scalar(a) / b;
}
template <typename T>
[[nodiscard]] tensor<T> operator-(const tensor<T>& a) {
  return map([](T x) { return static_cast<T>(-x); }, a);
}

}  // namespace parx
