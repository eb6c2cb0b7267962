// The matrix product by the site's BLAS (OpenBLAS, MKL, BLIS, ...), through its C interface.
//
// parx's own code computes products that are too small to be worth the call. One thread unless the
// user asked for more: see one_thread.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <limits>

#include <cblas.h>

#include <parx/tensor/detail/one_thread.hpp>
#include <parx/tensor/gemm/gemm.hpp>

namespace parx::inline PARX_ABI::detail::blas {

inline void call(CBLAS_TRANSPOSE a_as, CBLAS_TRANSPOSE b_as, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasRowMajor, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void call(CBLAS_TRANSPOSE a_as, CBLAS_TRANSPOSE b_as, int m, int n, int k, double alpha,
                 const double* a, int lda, const double* b, int ldb, double beta, double* c,
                 int ldc) {
  cblas_dgemm(CblasRowMajor, a_as, b_as, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/// The number of multiplications from which on the library is called; below, its fixed costs
/// dominate. OpenBLAS against parx in GFLOP/s, AVX2: 21 and 42 for 16x16x16, 52 and 69 for
/// 48x48x48, 68 and 73 for 128x128x128. On AVX-512 OpenBLAS reaches 85 for 16x16x16.
inline constexpr std::size_t worth_a_call = 16 * 16 * 16;

template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* row, const product_finish<T>& finish) {
  if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
    // Many libraries have 32-bit sizes.
    constexpr std::size_t limit = std::numeric_limits<int>::max();
    const bool countable =
        m <= limit && n <= limit && k <= limit && lda <= limit && ldb <= limit && ldc <= limit;
    if (countable && m * n * k >= worth_a_call) {
      hold_openblas_to_one_thread();
      const one_openmp_thread held;
      if (row != nullptr) {
        for (std::size_t i = 0; i < m; ++i) std::copy_n(row, n, c + i * ldc);
        beta = 1;
      }
      const auto as = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
      const auto number = [](std::size_t value) { return static_cast<int>(value); };
      call(as(transpose_a), as(transpose_b), number(m), number(n), number(k), alpha, a, number(lda),
           b, number(ldb), beta, c, number(ldc));
      finish({c, ldc, 0, 0, m, n});
      return;
    }
  }
  product::gemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, row,
                finish);
}

}  // namespace parx::detail::blas
