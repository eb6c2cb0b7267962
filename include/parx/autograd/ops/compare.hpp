// maximum, minimum, clamp, where, masked_fill, lerp, pow, and comparisons.
//
// Operands are broadcast; beside a variable a tensor is a constant. Results are new tensors. All
// throw usage_error, naming both shapes, where these do not broadcast. Those of variables also
// throw it for logits that are cut over ranks; the message names parx::full_logits.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/element_wise.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/elementary.hpp>
#include <parx/tensor/arithmetic.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail {
// Y = f(a, b) element by element of two variables that are broadcast.

/// f(a, b) of tensors, f perhaps on_packets; numbers of 16 bits are computed as floats.
template <typename T, typename Function>
[[nodiscard]] tensor<T> apply(const tensor<T>& a, const tensor<T>& b, Function f) {
  using A = arithmetic_type<T>;
  if constexpr (is_on_packets<Function> && !is_half<T>) return map(f, a, b);
  return map([=](T x, T y) { return static_cast<T>(f(static_cast<A>(x), static_cast<A>(y))); }, a,
             b);
}

/// The variable y = f(a, b); of_a(upstream, x, y) and of_b(upstream, x, y) are what elements x of a
/// and y of b contribute to the gradients.
template <typename T, typename Function, typename OfA, typename OfB>
[[nodiscard]] variable<T> binary(const variable<T>& a, const variable<T>& b, Function f, OfA of_a,
                                 OfB of_b) {
  using A = arithmetic_type<T>;
  return differentiable(
      apply(a.value(), b.value(), f),
      [of_a, of_b, x = a.value(), y = b.value()](const tensor<T>& upstream, grad_sink<T> da,
                                                 grad_sink<T> db) {
        if (da.needed()) da.map([=](A u, A v, A w) { return of_a(u, v, w); }, upstream, x, y);
        if (db.needed()) db.map([=](A u, A v, A w) { return of_b(u, v, w); }, upstream, x, y);
      },
      a, b);
}
}  // namespace parx::detail

namespace parx::inline PARX_ABI {

namespace detail {

/// An operand beside a variable<T>: a variable, a tensor or a number.
template <typename T>
struct variable_operand {
  variable<T> value;

  variable_operand(variable<T> all) : value(std::move(all)) {}  // NOLINT(google-explicit-*)
  variable_operand(tensor<T> all) : value(std::move(all)) {}    // NOLINT(google-explicit-*)
  template <typename Number>
  requires(std::is_arithmetic_v<Number> || std::is_same_v<Number, T>)
      variable_operand(Number number)  // NOLINT(google-explicit-*)
      : value(tensor<T>::scalar(static_cast<T>(number))) {}
};
template <typename T>
using beside = std::type_identity_t<variable_operand<T>>;
template <typename X>
using compared_with = variable_operand<typename X::value_type>;

/// The larger number; NaN where one of them is NaN.
constexpr auto larger = [](auto x, auto y) {
  const decltype(x) most = x > y ? x : y;
  return x != x ? x : most;
};
constexpr auto smaller = [](auto x, auto y) {
  const decltype(x) least = x < y ? x : y;
  return x != x ? x : least;
};
/// c ? x : y without a branch, which random masks make slow.
template <typename T>
[[nodiscard]] T chosen(bool c, T x, T y) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    using word = simd::word_of<T>;
    const word mask = word{0} - static_cast<word>(c);
    return std::bit_cast<T>((std::bit_cast<word>(x) & mask) | (std::bit_cast<word>(y) & ~mask));
  } else {
    return c ? x : y;
  }
}

}  // namespace detail

/// The larger of two elements; NaN where one of them is NaN. Of equal ones each gets half of the
/// gradient.
template <typename T>
[[nodiscard]] tensor<T> maximum(const tensor<T>& a, const operand_of<T>& b,
                                call_site = call_site::current()) {
  return detail::apply(a, b.value, on_packets(detail::larger));
}
template <typename T>
[[nodiscard]] variable<T> maximum(const variable<T>& a, const detail::beside<T>& b,
                                  call_site = call_site::current()) {
  using A = arithmetic_type<T>;
  return detail::binary(
      a, b.value, on_packets(detail::larger),
      [](A u, A x, A y) { return x < y    ? A(0)
                                 : x == y ? u / 2
                                          : u; },
      [](A u, A x, A y) { return x > y    ? A(0)
                                 : x == y ? u / 2
                                          : u; });
}

/// The smaller of two elements; likewise.
template <typename T>
[[nodiscard]] tensor<T> minimum(const tensor<T>& a, const operand_of<T>& b,
                                call_site = call_site::current()) {
  return detail::apply(a, b.value, on_packets(detail::smaller));
}
template <typename T>
[[nodiscard]] variable<T> minimum(const variable<T>& a, const detail::beside<T>& b,
                                  call_site = call_site::current()) {
  using A = arithmetic_type<T>;
  return detail::binary(
      a, b.value, on_packets(detail::smaller),
      [](A u, A x, A y) { return x > y    ? A(0)
                                 : x == y ? u / 2
                                          : u; },
      [](A u, A x, A y) { return x < y    ? A(0)
                                 : x == y ? u / 2
                                          : u; });
}

/// x between `min` and `max`; NaN stays. Where min > max all are max. The gradient passes where
/// min <= x <= max. An infinite bound bounds nothing.
template <detail::tensor_or_variable X>
[[nodiscard]] auto clamp(const X& x, double min, double max) {
  return detail::of_input(
      x,
      [min, max](auto v) {
        using V = decltype(v);
        const V low = detail::all_of<V>(detail::rounded_as(v, min));
        return detail::at_most(detail::at_least(v, low),
                               detail::all_of<V>(detail::rounded_as(v, max)));
      },
      [min, max](auto v) {
        using V = decltype(v);
        const V above = v < detail::rounded_as(v, min) ? V{} : detail::all_of<V>(1);
        return v > detail::rounded_as(v, max) ? V{} : above;
      });
}
/// max(x, min)
template <detail::tensor_or_variable X>
[[nodiscard]] auto clamp_min(const X& x, double min) {
  return clamp(x, min, std::numeric_limits<double>::infinity());
}
/// min(x, max)
template <detail::tensor_or_variable X>
[[nodiscard]] auto clamp_max(const X& x, double max) {
  return clamp(x, -std::numeric_limits<double>::infinity(), max);
}

/// a where `condition`, else b.
template <typename T>
[[nodiscard]] tensor<T> where(const tensor<bool>& condition, const tensor<T>& a,
                              const operand_of<T>& b, call_site = call_site::current()) {
  return map([](bool c, T x, T y) { return detail::chosen(c, x, y); }, condition, a, b.value);
}
template <typename T>
[[nodiscard]] variable<T> where(const tensor<bool>& condition, const variable<T>& a,
                                const detail::beside<T>& b, call_site = call_site::current()) {
  return differentiable(
      where(condition, a.value(), b.value.value()),
      [condition](const tensor<T>& upstream, grad_sink<T> da, grad_sink<T> db) {
        if (da.needed())
          da.map([](bool c, T u) { return detail::chosen(c, u, T(0)); }, condition, upstream);
        if (db.needed())
          db.map([](bool c, T u) { return detail::chosen(c, T(0), u); }, condition, upstream);
      },
      a, b.value);
}
template <typename T>
[[nodiscard]] variable<T> where(const tensor<bool>& condition, const tensor<T>& a,
                                const variable<T>& b, call_site = call_site::current()) {
  return where(condition, variable<T>(a), b);
}

/// x, and `value` where `mask` is true. The mask broadcasts to x's shape.
template <typename T>
[[nodiscard]] tensor<T> masked_fill(const tensor<T>& x, const tensor<bool>& mask,
                                    std::type_identity_t<T> value,
                                    call_site = call_site::current()) {
  require(broadcast_shapes(mask.shape(), x.shape()) == x.shape(),
          "masked_fill: a mask of shape {} for a tensor of shape {}", to_string(mask.shape()),
          to_string(x.shape()));
  return map([=](bool m, T v) { return detail::chosen(m, value, v); }, mask, x);
}
template <typename T>
[[nodiscard]] variable<T> masked_fill(const variable<T>& x, const tensor<bool>& mask,
                                      std::type_identity_t<T> value,
                                      call_site = call_site::current()) {
  return differentiable(
      masked_fill(x.value(), mask, value),
      [mask](const tensor<T>& upstream, grad_sink<T> dx) {
        dx.map([](bool m, T u) { return detail::chosen(m, T(0), u); }, mask, upstream);
      },
      x);
}

/// a + weight (b - a)
template <typename T>
[[nodiscard]] tensor<T> lerp(const tensor<T>& a, const tensor<T>& b, double weight,
                             call_site = call_site::current()) {
  const auto w = static_cast<arithmetic_type<T>>(weight);
  return detail::apply(a, b, [w](auto x, auto y) { return detail::simd::fma(w, y - x, x); });
}
template <typename T>
[[nodiscard]] variable<T> lerp(const variable<T>& a, const detail::beside<T>& b, double weight,
                               call_site = call_site::current()) {
  using A = arithmetic_type<T>;
  const auto w = static_cast<A>(weight);
  return detail::binary(
      a, b.value, [=](A x, A y) { return detail::simd::fma(w, y - x, x); },
      [=](A u, A, A) { return u * (1 - w); }, [=](A u, A, A) { return u * w; });
}

/// x^exponent. Exponents 2, 3, 0.5, 1, 0, -0.5, -1 and -2 are products, quotients and roots; others
/// are the C library's pow of each element, NaN for x < 0 unless the exponent is whole.
template <typename T>
[[nodiscard]] tensor<T> pow(const tensor<T>& x, double exponent, call_site = call_site::current()) {
  const auto one = [](auto v) { return detail::all_of<decltype(v)>(1); };
  if (exponent == 2) return square(x);
  if (exponent == 3) return detail::apply(x, [](auto v) { return v * v * v; });
  if (exponent == 0.5) return sqrt(x);
  if (exponent == 1) return x.clone();
  if (exponent == 0) return detail::apply(x, one);
  if (exponent == -0.5) return rsqrt(x);
  if (exponent == -1) return reciprocal(x);
  if (exponent == -2) return detail::apply(x, [](auto v) { return 1.0F / (v * v); });
  return detail::apply(x, [exponent](auto v) {
    const auto y = detail::rounded_as(v, exponent);
    return detail::by_element(v, [y](auto e) { return std::pow(e, y); });
  });
}
template <typename T>
[[nodiscard]] variable<T> pow(const variable<T>& x, double exponent,
                              call_site = call_site::current()) {
  tensor<T> y = pow(x.value(), exponent);
  return differentiable(
      std::move(y),
      [exponent, v = x.value()](const tensor<T>& upstream, grad_sink<T> dx) {
        using A = arithmetic_type<T>;
        const auto factor = static_cast<A>(exponent);
        if (exponent == 0) {
          dx.map([](A) { return A(0); }, upstream);
        } else if (exponent == 2) {
          dx.map([](A u, A e) { return 2 * u * e; }, upstream, v);
        } else {
          dx.map([=](A u, A d) { return u * factor * d; }, upstream, pow(v, exponent - 1));
        }
      },
      x);
}
/// a^b, element by element: the C library's pow.
template <typename T>
[[nodiscard]] tensor<T> pow(const tensor<T>& a, const tensor<T>& b,
                            call_site = call_site::current()) {
  return detail::apply(a, b, [](auto x, auto y) { return std::pow(x, y); });
}
template <typename T>
[[nodiscard]] variable<T> pow(const variable<T>& a, const std::type_identity_t<variable<T>>& b,
                              call_site = call_site::current()) {
  using A = arithmetic_type<T>;
  return detail::binary(
      a, b, [](A x, A y) { return std::pow(x, y); },
      [](A u, A x, A y) { return y == 0 ? A(0) : u * y * std::pow(x, y - 1); },
      [](A u, A x, A y) { return x == 0 && y >= 0 ? A(0) : u * std::pow(x, y) * std::log(x); });
}
/// base^x
template <typename T>
[[nodiscard]] variable<T> pow(double base, const variable<T>& x, call_site = call_site::current()) {
  return pow(variable<T>(tensor<T>::scalar(static_cast<T>(base))), x);
}

// Comparisons of tensors and variables, which have no gradient. One with NaN is false, but ne() is
// true.

/// a < b, as PyTorch's lt; b is a tensor, a variable or a number, and broadcasts.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> lt(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x < y; }, detail::values_of(a), b.value.value());
}
/// a <= b.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> le(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x <= y; }, detail::values_of(a), b.value.value());
}
/// a > b.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> gt(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x > y; }, detail::values_of(a), b.value.value());
}
/// a >= b.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> ge(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x >= y; }, detail::values_of(a), b.value.value());
}
/// a == b, element by element.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> eq(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x == y; }, detail::values_of(a), b.value.value());
}
/// a != b, element by element.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> ne(const X& a, const detail::compared_with<X>& b,
                              call_site = call_site::current()) {
  return map([](auto x, auto y) { return x != y; }, detail::values_of(a), b.value.value());
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> operator<(const X& a, const detail::compared_with<X>& b) {
  return lt(a, b);
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> operator<=(const X& a, const detail::compared_with<X>& b) {
  return le(a, b);
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> operator>(const X& a, const detail::compared_with<X>& b) {
  return gt(a, b);
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> operator>=(const X& a, const detail::compared_with<X>& b) {
  return ge(a, b);
}

/// a && b, with broadcasting.
[[nodiscard]] inline tensor<bool> logical_and(const tensor<bool>& a, const tensor<bool>& b,
                                              call_site = call_site::current()) {
  return map([](bool x, bool y) { return x && y; }, a, b);
}
/// a or b, with broadcasting.
[[nodiscard]] inline tensor<bool> logical_or(const tensor<bool>& a, const tensor<bool>& b,
                                             call_site = call_site::current()) {
  return map([](bool x, bool y) { return x || y; }, a, b);
}
/// Not x.
[[nodiscard]] inline tensor<bool> logical_not(const tensor<bool>& a) {
  return map([](bool x) { return !x; }, a);
}

/// Whether each element is NaN, infinite, neither.
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> isnan(const X& x) {
  return map([](auto v) { return v != v; }, detail::values_of(x));
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> isinf(const X& x) {
  return map([](auto v) { return v == v && v - v != v - v; }, detail::values_of(x));
}
template <detail::tensor_or_variable X>
[[nodiscard]] tensor<bool> isfinite(const X& x) {
  return map([](auto v) { return v - v == v - v; }, detail::values_of(x));
}

}  // namespace parx
