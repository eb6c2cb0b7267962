// The matrix product by oneDNN, which generates its kernels for the processor it runs on.
//
// Eigen computes products of other types than float, and those too small to be worth the call. One
// thread unless the user asked for more: see one_thread.hpp.
#pragma once

#include <concepts>
#include <cstddef>

#include <oneapi/dnnl/dnnl.h>

#include <parx/core/check.hpp>
#include <parx/tensor/detail/gemm_eigen.hpp>
#include <parx/tensor/detail/one_thread.hpp>

namespace parx::inline PARX_ABI::detail::onednn {

/// The number of multiplications from which on the library is called; below, its fixed costs
/// dominate. oneDNN against Eigen in GFLOP/s, AVX-512: 22 and 45 for 16x16x16, 87 and 93 for
/// 32x32x32, 143 and 108 for 128x128x32.
inline constexpr std::size_t worth_a_call = 32 * 32 * 32;

template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* row = nullptr) {
  if constexpr (std::same_as<T, float>) {
    if (m * n * k >= worth_a_call) {
      const one_openmp_thread held;
      if (row != nullptr) {
        eigen::spread_row(m, n, row, c, ldc);
        beta = 1;
      }
      const auto as = [](bool transposed) { return transposed ? 'T' : 'N'; };
      const auto number = [](std::size_t value) { return static_cast<dnnl_dim_t>(value); };
      const dnnl_status_t status =
          dnnl_sgemm(as(transpose_a), as(transpose_b), number(m), number(n), number(k), alpha, a,
                     number(lda), b, number(ldb), beta, c, number(ldc));
      require(status == dnnl_success,
              "oneDNN refused a product of {}x{} and {}x{} with status {} (out of memory?)", m, k,
              k, n, static_cast<int>(status));
      return;
    }
  }
  eigen::gemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, row);
}

}  // namespace parx::detail::onednn
