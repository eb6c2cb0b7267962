// log, log1p, expm1, sin, cos and their kin on packets, as vector_math.hpp has exp and tanh.
//
// On floats they are polynomials of multiply-adds by name: the same bits on all machines that have
// the instruction, at every width of the registers, from every compiler. On doubles they are the C
// library's. NaN stays NaN.
//
//   log           within 1 unit in the last place, denormal numbers too
//   log1p, expm1  within 4 units in the last place, small numbers too
//   erf, atan     within 2e-7 absolute, and relative to 4 units in the last place
//   sin, cos      within 2 units in the last place, or 6e-8 absolute, for |x| <= 8192; beyond that
//                 the C library's, of the number as a double
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <parx/tensor/packet.hpp>
#include <parx/tensor/vector_math.hpp>

namespace parx::inline PARX_ABI::detail {

template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_abs(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::abs(x);
  } else {
    using integers = simd::vector_like<std::int32_t, V>;
    return std::bit_cast<V>(integers(std::bit_cast<integers>(x) & 0x7FFFFFFF));
  }
}

/// f of each element, a number at a time.
template <typename V, typename Function>
[[nodiscard, gnu::always_inline]] inline V by_element(V x, Function f) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return f(x);
  } else {
    for (std::size_t i = 0; i < sizeof(V) / sizeof x[0]; ++i) x[i] = f(x[i]);
    return x;
  }
}

/// The nearest integer, the even one of two, and the next below, above and towards 0. Compilers
/// have an instruction for the first alone unless exceptions do not matter.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_round(V x) noexcept {
  return by_element(x, [](auto v) { return std::nearbyint(v); });
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_floor(V x) noexcept {
  const V r = vector_round(x), below = r - all_of<V>(1);
  return r > x ? below : r;
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_ceil(V x) noexcept {
  return -vector_floor<V>(-x);
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_trunc(V x) noexcept {
  const V down = vector_floor(x), up = vector_ceil(x);
  return x < V{} ? up : down;
}

/// Correctly rounded.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_sqrt(V x) noexcept {
  if constexpr (std::is_same_v<V, simd::floats>) {
    return simd::square_root<float>(x);
  } else {
    return by_element(x, [](auto v) { return std::sqrt(v); });
  }
}

/// x = 2^e m with sqrt(1/2) <= m < sqrt(2); the polynomial of Cephes' logf in m - 1.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_log(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::log(x);
  } else {
    using integers = simd::vector_like<std::int32_t, V>;
    constexpr float smallest = std::numeric_limits<float>::min();
    const V scaled = x < smallest ? x * 8388608.0F : x;  // 2^23: no longer denormal
    const V shift = x < smallest ? all_of<V>(-23.0F) : V{};
    constexpr std::int32_t root_half = 0x3F3504F3;
    const integers bits = std::bit_cast<integers>(scaled) - root_half;
    const V e = __builtin_convertvector(integers(bits >> 23), V) + shift;
    const V m = std::bit_cast<V>(integers((bits & 0x007FFFFF) + root_half)) - 1.0F;
    V p = all_of<V>(7.0376836292e-2F);
    p = simd::fma(p, m, all_of<V>(-1.1514610310e-1F));
    p = simd::fma(p, m, all_of<V>(1.1676998740e-1F));
    p = simd::fma(p, m, all_of<V>(-1.2420140846e-1F));
    p = simd::fma(p, m, all_of<V>(1.4249322787e-1F));
    p = simd::fma(p, m, all_of<V>(-1.6668057665e-1F));
    p = simd::fma(p, m, all_of<V>(2.0000714765e-1F));
    p = simd::fma(p, m, all_of<V>(-2.4999993993e-1F));
    p = simd::fma(p, m, all_of<V>(3.3333331174e-1F));
    const V square = m * m;
    V y = simd::fma(e, all_of<V>(-2.12194440e-4F), V(p * m * square));
    y = simd::fma(square, all_of<V>(-0.5F), y);
    const V result = simd::fma(e, all_of<V>(0.693359375F), V(y + m));
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const V of_zero = x == 0.0F ? all_of<V>(-infinity) : result;
    const V of_negative = x < 0.0F ? all_of<V>(std::numeric_limits<float>::quiet_NaN()) : of_zero;
    return x < infinity ? of_negative : x;  // infinity and NaN
  }
}

/// log(1 + x), by Kahan's correction of log.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_log1p(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::log1p(x);
  } else {
    const V u = x + 1.0F, d = u - 1.0F;
    const V y = vector_log<V>(u) * (x / d);
    const V small = d == 0.0F ? x : y;
    return u < std::numeric_limits<float>::infinity() && u > 0.0F ? small : vector_log<V>(u);
  }
}

/// exp(x) - 1: the reduction and polynomial of vector_exp, without adding the 1 that it lacks.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_expm1(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::expm1(x);
  } else {
    using integers = simd::vector_like<std::int32_t, V>;
    const V bounded = at_least(at_most(x, all_of<V>(88.3F)), all_of<V>(-20.0F));
    const V magic = all_of<V>(12582912.0F);
    const V shifted = simd::fma(bounded, all_of<V>(1.44269504F), magic);
    const V n = shifted - magic;
    V r = simd::fma(n, all_of<V>(-0.693359375F), bounded);
    r = simd::fma(n, all_of<V>(2.12194440e-4F), r);
    V p = all_of<V>(1.9875691500e-4F);
    p = simd::fma(p, r, all_of<V>(1.3981999507e-3F));
    p = simd::fma(p, r, all_of<V>(8.3334519073e-3F));
    p = simd::fma(p, r, all_of<V>(4.1665795894e-2F));
    p = simd::fma(p, r, all_of<V>(1.6666665459e-1F));
    p = simd::fma(p, r, all_of<V>(5.0000001201e-1F));
    p = simd::fma(V(p * r), r, r);
    const integers exponent = std::bit_cast<integers>(shifted) - std::bit_cast<integers>(magic);
    const V power = std::bit_cast<V>(integers((exponent + 127) << 23));
    const V result = simd::fma(power, p, V(power - 1.0F));
    return x > 88.3F ? vector_exp(x) : result;
  }
}

enum class circular { sine, cosine };

/// Cody-Waite reduction to |r| <= pi / 4 and the minimax polynomials of Cephes' sinf and cosf.
template <circular F, typename V>
[[nodiscard, gnu::always_inline]] inline V vector_circular(V x) noexcept {
  constexpr bool is_sine = F == circular::sine;
  const auto of_library = [](auto v) {
    return static_cast<decltype(v)>(is_sine ? std::sin(static_cast<double>(v))
                                            : std::cos(static_cast<double>(v)));
  };
  if constexpr (std::is_arithmetic_v<V>) {
    return of_library(x);
  } else {
    using integers = simd::vector_like<std::int32_t, V>;
    const V magic = all_of<V>(12582912.0F);  // rounds to an integer, as in vector_exp
    const V size = vector_abs<V>(x), bounded = size <= 8192.0F ? x : V{};
    const V shifted = simd::fma(bounded, all_of<V>(0.636619772F), magic);
    const V n = shifted - magic;
    // pi / 2 in three parts, of which the first two times n are exact.
    V r = simd::fma(n, all_of<V>(-1.5703125F), bounded);
    r = simd::fma(n, all_of<V>(-4.837512969970703125e-4F), r);
    r = simd::fma(n, all_of<V>(-7.549789948768648e-8F), r);
    integers quadrant = std::bit_cast<integers>(shifted);
    if constexpr (!is_sine) quadrant += 1;
    const V square = r * r;
    V sine = all_of<V>(-1.9515295891e-4F);
    sine = simd::fma(sine, square, all_of<V>(8.3321608736e-3F));
    sine = simd::fma(sine, square, all_of<V>(-1.6666654611e-1F));
    sine = simd::fma(V(sine * square), r, r);
    V cosine = all_of<V>(2.443315711809948e-5F);
    cosine = simd::fma(cosine, square, all_of<V>(-1.388731625493765e-3F));
    cosine = simd::fma(cosine, square, all_of<V>(4.166664568298827e-2F));
    cosine =
        simd::fma(V(cosine * square), square, simd::fma(square, all_of<V>(-0.5F), all_of<V>(1.0F)));
    const V part = (quadrant & 1) != 0 ? cosine : sine;
    V result = std::bit_cast<V>(integers(std::bit_cast<integers>(part) ^ ((quadrant & 2) << 30)));
    const integers within = size <= 8192.0F;
    std::int32_t all = -1;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(float); ++i) all &= within[i];
    if (all == 0) [[unlikely]] {
      for (std::size_t i = 0; i < sizeof(V) / sizeof(float); ++i) {
        if (within[i] == 0) result[i] = of_library(x[i]);
      }
    }
    return result;
  }
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_sin(V x) noexcept {
  return vector_circular<circular::sine>(x);
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_cos(V x) noexcept {
  return vector_circular<circular::cosine>(x);
}

/// Cephes' atanf: reduced to |x| <= tan(pi / 8).
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_atan(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::atan(x);
  } else {
    const V size = vector_abs(x), one = all_of<V>(1);
    const V steep = -one / size, middle = (size - one) / (size + one);
    V r = size > 0.4142135623730950F ? middle : size;
    r = size > 2.414213562373095F ? steep : r;
    V base = size > 0.4142135623730950F ? all_of<V>(0.785398163397F) : V{};
    base = size > 2.414213562373095F ? all_of<V>(1.5707963267948F) : base;
    const V square = r * r;
    V p = all_of<V>(8.05374449538e-2F);
    p = simd::fma(p, square, all_of<V>(-1.38776856032e-1F));
    p = simd::fma(p, square, all_of<V>(1.99777106478e-1F));
    p = simd::fma(p, square, all_of<V>(-3.33329491539e-1F));
    const V y = base + simd::fma(V(p * square), r, r);
    return x < V{} ? V(-y) : y;
  }
}

/// Cephes' erff up to 1, and 1 - erfc beyond.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_erf(V x) noexcept {
  if constexpr (std::is_arithmetic_v<V>) {
    return std::erf(x);
  } else {
    const V size = at_most(vector_abs(x), all_of<V>(7.0F)), square = size * size;
    V p = all_of<V>(7.853861353153693e-5F);
    p = simd::fma(p, square, all_of<V>(-8.010193625184903e-4F));
    p = simd::fma(p, square, all_of<V>(5.188327685732524e-3F));
    p = simd::fma(p, square, all_of<V>(-2.685381193529856e-2F));
    p = simd::fma(p, square, all_of<V>(1.128358514861418e-1F));
    p = simd::fma(p, square, all_of<V>(-3.761262582423300e-1F));
    p = simd::fma(p, square, all_of<V>(1.128379165726710F));
    const V tail = simd::fma(V(-scaled_erfc(size)), vector_exp<V>(-square), all_of<V>(1));
    const V inner = p * size;
    const V y = size > 1.0F ? tail : inner;
    return x < V{} ? V(-y) : y;
  }
}

/// `number` in the precision of v.
template <typename V>
[[nodiscard, gnu::always_inline]] inline auto rounded_as(V /*v*/, double number) noexcept {
  return static_cast<typename packet_element<V>::type>(number);
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V scaled_log(V v, double scale) noexcept {
  return vector_log<V>(v) * rounded_as(v, scale);
}
/// 1 + a b, rounded once.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V one_plus_product(V a,
                                                            std::type_identity_t<V> b) noexcept {
  return simd::fma(a, b, all_of<V>(1));
}
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_sign(V v) noexcept {
  const V one = all_of<V>(1), below = v < V{} ? V(-one) : V{};
  return v > V{} ? one : below;
}

/// log(1 + exp(x)), without overflow.
template <typename V>
[[nodiscard, gnu::always_inline]] inline V vector_softplus(V x) noexcept {
  return at_least<V>(x, V{}) + vector_log1p<V>(vector_exp<V>(-vector_abs<V>(x)));
}

}  // namespace parx::detail
