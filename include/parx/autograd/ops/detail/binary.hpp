// binary: y = f(a, b) element by element of two variables that are broadcast.
#pragma once

#include <type_traits>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/tensor/pointwise.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::detail {

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
