// exp, tanh and erf that the compiler can vectorise: no branches, no tables, no calls.
//
// For float they are polynomials, within 2 units in the last place of the true value (exp), or 4
// (tanh, erf: absolute 2e-7); NaN stays NaN. For double they are the standard library's: gradients
// are checked in double, models are trained in float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include <parx/core/abi.hpp>

namespace parx::inline PARX_ABI::detail {

/// Cody-Waite reduction to |r| <= ln(2) / 2 and the minimax polynomial of Cephes' expf. Results
/// below the smallest normal number are 0.
[[nodiscard]] inline float vector_exp(float x) noexcept {
  constexpr float highest = 88.72284F, lowest = -87.33654F;
  const float clamped = x > highest ? highest : x;
  const float bounded = clamped < lowest ? lowest : clamped;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  constexpr float magic = 12582912.0F;
  const float shifted = bounded * 1.44269504F + magic;
  const float n = shifted - magic;
  const float r = (bounded - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float mantissa = (p * r * r + r) + 1.0F;
  // 2^n in two factors, because 2^128 is beyond float's range.
  const std::int32_t exponent =
      std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(magic);
  const std::int32_t half = exponent >> 1;
  const float scale = std::bit_cast<float>((half + 127) << 23);
  const float rest = std::bit_cast<float>((exponent - half + 127) << 23);
  const float result = mantissa * scale * rest;
  return x < lowest ? 0.0F : x > highest ? std::bit_cast<float>(0x7F800000) : result;
}
[[nodiscard]] inline double vector_exp(double x) noexcept { return std::exp(x); }

/// The rational approximation of Eigen's and XLA's tanh on |x| <= 7.9.
[[nodiscard]] inline float vector_tanh(float x) noexcept {
  constexpr float limit = 7.90531110763549805F;
  const float high = x > limit ? limit : x;
  const float c = high < -limit ? -limit : high;
  const float s = c * c;
  float p = -2.76076847742355e-16F;
  p = p * s + 2.00018790482477e-13F;
  p = p * s + -8.60467152213735e-11F;
  p = p * s + 5.12229709037114e-08F;
  p = p * s + 1.48572235717979e-05F;
  p = p * s + 6.37261928875436e-04F;
  p = p * s + 4.89352455891786e-03F;
  float q = 1.19825839466702e-06F;
  q = q * s + 1.18534705686654e-04F;
  q = q * s + 2.26843463243900e-03F;
  q = q * s + 4.89352518554385e-03F;
  return c * p / q;
}
[[nodiscard]] inline double vector_tanh(double x) noexcept { return std::tanh(x); }

/// The rational approximation of Eigen's and XLA's erf on |x| <= 4.
[[nodiscard]] inline float vector_erf(float x) noexcept {
  const float high = x > 4.0F ? 4.0F : x;
  const float c = high < -4.0F ? -4.0F : high;
  const float s = c * c;
  float p = -2.72614225801306e-10F;
  p = p * s + 2.77068142495902e-08F;
  p = p * s + -2.10102402082508e-06F;
  p = p * s + -5.69250639462346e-05F;
  p = p * s + -7.34990630326855e-04F;
  p = p * s + -2.95459980854025e-03F;
  p = p * s + -1.60960333262415e-02F;
  float q = -1.45660718464996e-05F;
  q = q * s + -2.13374055278905e-04F;
  q = q * s + -1.68282697438203e-03F;
  q = q * s + -7.37332916720468e-03F;
  q = q * s + -1.42647390514189e-02F;
  return c * p / q;
}
[[nodiscard]] inline double vector_erf(double x) noexcept { return std::erf(x); }

template <typename T>
[[nodiscard]] T vector_sigmoid(T x) noexcept {
  return T(1) / (T(1) + vector_exp(-x));
}

}  // namespace parx::detail
