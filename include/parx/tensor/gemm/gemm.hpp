// gemm: parx's own product of matrices, c = finish(alpha a b + base), in the order of order.hpp.
#pragma once

#include <cstddef>
#include <type_traits>

#include <parx/tensor/gemm/blocking.hpp>
#include <parx/tensor/gemm/few_rows.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// See blocked_product.
template <typename S, typename T, typename Finish = unfinished>
void multiply(std::size_t m, std::size_t n, std::size_t k, T alpha, matrix<T> a, matrix<T> b,
              addend<T> base, T* c, std::size_t ldc, const Finish& finish = {}) {
  if (m == 0 || n == 0) return;
  if constexpr (std::is_same_v<Finish, unfinished>) {
    if (m <= most_few_rows && (b.down == 1 || b.right == 1)) {
      return multiply_few_rows(
          m, n, k, alpha, a, b, [&](std::size_t i, std::size_t j) { return base.at(i, j); },
          [&](std::size_t i, std::size_t j, T value) { c[i * ldc + j] = value; });
    }
    // A few columns are the few rows of the transposed product: no term changes its place.
    if (n <= most_few_rows && (a.down == 1 || a.right == 1)) {
      return multiply_few_rows(
          n, m, k, alpha, b.transposed(), a.transposed(),
          [&](std::size_t i, std::size_t j) { return base.at(j, i); },
          [&](std::size_t i, std::size_t j, T value) { c[j * ldc + i] = value; });
    }
  }
  blocked_product<S, Finish>(m, n, k, alpha, a, b, base, c, ldc, finish,
                             blocking::choose<S>(m, n, k, a, b))
      .run();
}

/// As parx::gemm, with flags in place of `op`.
template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* row) {
  const auto operand = [](bool transposed, const T* data, std::size_t ld) {
    return transposed ? matrix<T>{data, 1, ld} : matrix<T>{data, ld, 1};
  };
  const addend<T> base = row != nullptr ? addend<T>{row, 0, T(1)}
                         : beta != T(0) ? addend<T>{c, ldc, beta}
                                        : addend<T>{};
  multiply<native_tile<T>>(m, n, k, alpha, operand(transpose_a, a, lda),
                           operand(transpose_b, b, ldb), base, c, ldc);
}

}  // namespace parx::detail::product
