// exp, log, sqrt, sin and their kin, element by element, of tensors and variables: PyTorch's names.
//
// float, double and 16-bit numbers, which are computed as floats and rounded once. The bits of
// floats are fixed (tensor/elementary.hpp); asin, acos, atan, sinh, cosh, erf and all of doubles
// are the C library's. NaN stays NaN. On logits that are cut over ranks those of variables throw
// usage_error, which names the operation and parx::full_logits.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <type_traits>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/element_wise.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/tensor/elementary.hpp>

namespace parx::inline PARX_ABI {

// X is a tensor or a variable.

/// e^x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto exp(const X& x) {
  return detail::of_output(
      x, [](auto v) { return detail::vector_exp(v); }, [](auto v) { return v; });
}
/// e^x - 1, without losing small x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto expm1(const X& x) {
  return detail::of_output(
      x, [](auto v) { return detail::vector_expm1(v); }, [](auto v) { return v + 1.0F; });
}
/// The natural logarithm; NaN below 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto log(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_log(v); }, [](auto v) { return 1.0F / v; });
}
/// The logarithm to base 2.
template <detail::tensor_or_variable X>
[[nodiscard]] auto log2(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::scaled_log(v, std::numbers::log2e); },
      [](auto v) { return detail::rounded_as(v, std::numbers::log2e) / v; });
}
/// The logarithm to base 10.
template <detail::tensor_or_variable X>
[[nodiscard]] auto log10(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::scaled_log(v, std::numbers::log10e); },
      [](auto v) { return detail::rounded_as(v, std::numbers::log10e) / v; });
}
/// log(1 + x), without losing small x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto log1p(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_log1p(v); }, [](auto v) { return 1.0F / (v + 1.0F); });
}
/// The square root; NaN below 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto sqrt(const X& x) {
  return detail::of_output(
      x, [](auto v) { return detail::vector_sqrt(v); }, [](auto v) { return 0.5F / v; });
}
/// 1 / sqrt(x).
template <detail::tensor_or_variable X>
[[nodiscard]] auto rsqrt(const X& x) {
  return detail::of_output(
      x, [](auto v) { return 1.0F / detail::vector_sqrt(v); },
      [](auto v) { return v * v * v * -0.5F; });
}
/// x^2.
template <detail::tensor_or_variable X>
[[nodiscard]] auto square(const X& x) {
  return detail::of_input(
      x, [](auto v) { return v * v; }, [](auto v) { return v * 2.0F; });
}
/// 1 / x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto reciprocal(const X& x) {
  return detail::of_output(
      x, [](auto v) { return 1.0F / v; }, [](auto v) { return -(v * v); });
}
/// |x|; the derivative at 0 is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto abs(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_abs(v); },
      [](auto v) { return detail::vector_sign(v); });
}
/// 1, 0 or -1; of NaN 0. Its derivative is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto sign(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_sign(v); }, [](auto v) { return decltype(v){}; });
}
/// The largest integer not above x. Its derivative is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto floor(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_floor(v); }, [](auto v) { return decltype(v){}; });
}
/// The smallest integer not below x. Its derivative is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto ceil(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_ceil(v); }, [](auto v) { return decltype(v){}; });
}
/// x without its fraction. Its derivative is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto trunc(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_trunc(v); }, [](auto v) { return decltype(v){}; });
}
/// The nearest integer, the even one of two. Its derivative is 0.
template <detail::tensor_or_variable X>
[[nodiscard]] auto round(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_round(v); }, [](auto v) { return decltype(v){}; });
}
/// The sine of an angle in radians.
template <detail::tensor_or_variable X>
[[nodiscard]] auto sin(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_sin(v); },
      [](auto v) { return detail::vector_cos(v); });
}
/// Its cosine.
template <detail::tensor_or_variable X>
[[nodiscard]] auto cos(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_cos(v); },
      [](auto v) { return -detail::vector_sin(v); });
}
/// Its tangent.
template <detail::tensor_or_variable X>
[[nodiscard]] auto tan(const X& x) {
  return detail::of_output(
      x, [](auto v) { return detail::vector_sin(v) / detail::vector_cos(v); },
      [](auto v) { return detail::one_plus_product(v, v); });
}
/// The angle in [-pi/2, pi/2] whose sine is x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto asin(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::by_element(v, [](auto e) { return std::asin(e); }); },
      [](auto v) { return 1.0F / detail::vector_sqrt(detail::one_plus_product(-v, v)); });
}
/// The angle in [0, pi] whose cosine is x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto acos(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::by_element(v, [](auto e) { return std::acos(e); }); },
      [](auto v) { return -1.0F / detail::vector_sqrt(detail::one_plus_product(-v, v)); });
}
/// The angle in (-pi/2, pi/2) whose tangent is x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto atan(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_atan(v); },
      [](auto v) { return 1.0F / detail::one_plus_product(v, v); });
}
/// (e^x - e^-x) / 2.
template <detail::tensor_or_variable X>
[[nodiscard]] auto sinh(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::by_element(v, [](auto e) { return std::sinh(e); }); },
      [](auto v) { return detail::by_element(v, [](auto e) { return std::cosh(e); }); });
}
/// (e^x + e^-x) / 2.
template <detail::tensor_or_variable X>
[[nodiscard]] auto cosh(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::by_element(v, [](auto e) { return std::cosh(e); }); },
      [](auto v) { return detail::by_element(v, [](auto e) { return std::sinh(e); }); });
}
/// 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.
template <detail::tensor_or_variable X>
[[nodiscard]] auto erf(const X& x) {
  return detail::of_input(
      x, [](auto v) { return detail::vector_erf(v); },
      [](auto v) {
        return detail::vector_exp(-(v * v)) * detail::rounded_as(v, 2 * std::numbers::inv_sqrtpi);
      });
}

}  // namespace parx
