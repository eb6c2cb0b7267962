// The product of matrices, c = finish(alpha a b + base), in the order of
// summation_order.hpp.
//
// parx computes all products by itself. BLAS and oneDNN were options, but neither won 10 % of a
// model's step: on the 57 products of the benchmarks' models the rate is 0.98 (AVX-512) and 0.91
// (AVX2) of the faster one's (geometric means; 2026-11-26, EPYC Zen 4, one thread).
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/tensor/gemm/blocking.hpp>
#include <parx/tensor/gemm/few_rows.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/split_terms.hpp>
#include <parx/tensor/gemm/workspace.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Whether the rows of the transposed product fill vectors better than the n columns do: 10 columns
/// are 10 of 16 lanes, but 10 rows are a tile. Transposing a then pays if there are many terms.
template <typename S, typename T>
[[nodiscard]] bool is_narrow(const multiplication<T>& x) noexcept {
  if (x.n <= most_few_rows) return true;
  const std::size_t padded = (x.n + S::lanes - 1) / S::lanes * S::lanes;
  return x.n < S::width && 4 * x.n < 3 * padded && x.m >= S::width && x.k >= 64;
}

template <typename S, typename T>
void multiply(const multiplication<T>& x);

/// By c^T = b^T a^T: no term changes its place.
template <typename S, typename T>
void multiply_transposed(const multiplication<T>& x) {
  const workspace<T> memory(x.m * x.n);
  T* const c = memory.data();
  for (std::size_t i = 0; x.base.data != nullptr && i < x.m; ++i) {
    for (std::size_t j = 0; j < x.n; ++j) c[j * x.m + i] = x.base.at(i, j);
  }
  const addend<T> base = x.base.data == nullptr ? addend<T>{} : addend<T>{c, x.m, T(1)};
  multiply<S>(multiplication<T>{.m = x.n, .n = x.m, .k = x.k, .alpha = x.alpha,
                                .a = x.b.transposed(), .b = x.a.transposed(), .base = base, .c = c,
                                .ldc = x.m});
  for (std::size_t i = 0; i < x.m; ++i) {
    for (std::size_t j = 0; j < x.n; ++j) x.c[i * x.ldc + j] = c[j * x.m + i];
  }
  x.finish({x.c, x.ldc, 0, 0, x.m, x.n});
}

template <typename S, typename T>
void multiply(const multiplication<T>& x) {
  if (x.m == 0 || x.n == 0) return;
  if (x.m <= most_few_rows) return multiply_few_rows(x);
  if (is_narrow<S>(x)) return multiply_transposed<S>(x);
  if (should_split_terms(x)) return multiply_split<S>(x);
  blocked_product<S>(x, blocking::choose<S>(x)).run();
}

}  // namespace parx::detail::product
