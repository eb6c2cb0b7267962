// lanes: the block of elements that an update rule processes at a time, in registers.
//
// A rule is the arithmetic of one step with all its constants, including the learning rate:
//   update(w, state, g)        the step of elements with a gradient
//   rest(w, state, rules)      the steps of elements without one, several in a row
// Both work on lanes with the same expressions, so that an element gets the same bits however its
// steps are grouped into calls. So lanes have no + and -, which a compiler would fuse with a
// product in one call and not in another: a sum is a multiply_add. Square roots are exact: the
// approximations of processors (rsqrt) differ between vendors, and ranks on unlike hosts would
// drift apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include <parx/tensor/tensor.hpp>
#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::optim::detail {

/// Four vector registers of elements. Arithmetic is element by element.
template <typename T>
struct lanes {
  using vector = parx::detail::simd::vector_of<T>;
  static constexpr std::size_t width = sizeof(vector) / sizeof(T);
  static constexpr std::size_t count = 4 * width;

  vector a{}, b{}, c{}, d{};  // no array: its elements would be kept in memory

  lanes() = default;
  lanes(vector first, vector second, vector third, vector fourth) noexcept
      : a(first), b(second), c(third), d(fourth) {}
  /// `number` in all elements.
  lanes(T number) noexcept  // NOLINT(google-explicit-constructor)
      : a(number - vector{}), b(a), c(a), d(a) {}

  [[nodiscard, gnu::always_inline]] static lanes load(const T* from) noexcept {
    lanes result;
    std::memcpy(&result.a, from, sizeof(vector));
    std::memcpy(&result.b, from + width, sizeof(vector));
    std::memcpy(&result.c, from + 2 * width, sizeof(vector));
    std::memcpy(&result.d, from + 3 * width, sizeof(vector));
    return result;
  }
  /// The first `left` elements; the others are zero.
  [[nodiscard]] static lanes load(const T* from, std::size_t left) noexcept {
    T whole[count]{};
    std::copy_n(from, left, whole);
    return load(whole);
  }
  [[gnu::always_inline]] void store(T* to) const noexcept {
    std::memcpy(to, &a, sizeof(vector));
    std::memcpy(to + width, &b, sizeof(vector));
    std::memcpy(to + 2 * width, &c, sizeof(vector));
    std::memcpy(to + 3 * width, &d, sizeof(vector));
  }
  void store(T* to, std::size_t left) const noexcept {
    T whole[count];
    store(whole);
    std::copy_n(whole, left, to);
  }

  /// Applies f to each register of the operands.
  template <typename F, typename... Operands>
  [[nodiscard, gnu::always_inline]] static lanes map(F f, const Operands&... operands) noexcept {
    return {f(operands.a...), f(operands.b...), f(operands.c...), f(operands.d...)};
  }
  /// x * y + z, rounded as simd::fma does.
  [[gnu::always_inline]] friend lanes multiply_add(const lanes& x, const lanes& y,
                                                   const lanes& z) noexcept {
    return map([](const auto&... v) { return parx::detail::simd::fma(v...); }, x, y, z);
  }
  [[gnu::always_inline]] friend lanes operator*(const lanes& x, const lanes& y) noexcept {
    return map(std::multiplies<>(), x, y);
  }
  [[gnu::always_inline]] friend lanes operator/(const lanes& x, const lanes& y) noexcept {
    return map(std::divides<>(), x, y);
  }
  [[gnu::always_inline]] friend lanes sqrt(const lanes& x) noexcept {
    return map([](const vector& v) { return parx::detail::simd::square_root<T>(v); }, x);
  }
  /// x where |x| >= limit, else 0.
  [[gnu::always_inline]] friend lanes zero_below(const lanes& x, const lanes& limit) noexcept {
    return map([](const vector& v, const vector& l) -> vector { return abs(v) < l ? vector{} : v; },
               x, limit);
  }

  /// False where an element is NaN.
  [[nodiscard]] bool all_zero() const noexcept {
    const vector sum = (abs(a) + abs(b)) + (abs(c) + abs(d));
    T total = 0;
    for (std::size_t i = 0; i < width; ++i) total += sum[i];
    return total == 0;
  }

 private:
  [[nodiscard, gnu::always_inline]] static vector abs(const vector& v) noexcept {
    return v < 0 ? -v : v;
  }
};

template <typename T, std::size_t States>
using state_lanes = std::array<lanes<T>, States>;

/// Calls f(w, state, offset) for each block of [begin, begin + count) of the value and its state
/// tensors, and stores what f leaves in w and state. Elements beyond the end are zero.
template <std::size_t States, typename T, typename F>
void for_each_lanes(T* value, const std::vector<tensor<T>>& state, std::size_t begin,
                    std::size_t count, F&& f) {
  const auto block = [&](std::size_t at, auto... left) {
    lanes<T> w = lanes<T>::load(value + at, left...);
    state_lanes<T, States> s;
    for (std::size_t k = 0; lanes<T>& each : s) {
      each = lanes<T>::load(state[k++].data() + at, left...);
    }
    f(w, s, at);
    w.store(value + at, left...);
    for (std::size_t k = 0; const lanes<T>& each : s) each.store(state[k++].data() + at, left...);
  };
  const std::size_t end = begin + count;
  std::size_t at = begin;
  for (; at + lanes<T>::count <= end; at += lanes<T>::count) block(at);
  if (at < end) block(at, end - at);
}

/// One step of [begin, begin + count) with the gradient `grad` (of the whole value).
template <std::size_t States, typename T, typename Rule>
void update_lanes(const Rule& rule, T* value, const std::vector<tensor<T>>& state, const T* grad,
                  std::size_t begin, std::size_t count) {
  const std::size_t end = begin + count;
  for_each_lanes<States>(value, state, begin, count,
                         [&](lanes<T>& w, state_lanes<T, States>& s, std::size_t at) {
                           const bool whole = at + lanes<T>::count <= end;
                           rule.update(w, s, whole ? lanes<T>::load(grad + at)
                                                   : lanes<T>::load(grad + at, end - at));
                         });
}

}  // namespace parx::optim::detail
