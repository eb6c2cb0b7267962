// The matrix product by oneDNN, which generates its kernels for the processor it runs on.
//
// parx's own code computes products of double, and those too small to be worth the call. One thread
// unless the user asked for more: see one_thread.hpp.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>

#include <oneapi/dnnl/dnnl.h>

#include <parx/core/check.hpp>
#include <parx/tensor/detail/one_thread.hpp>
#include <parx/tensor/gemm/gemm.hpp>

namespace parx::inline PARX_ABI::detail::onednn {

/// The number of multiplications from which on the library is called; below, its fixed costs
/// dominate. oneDNN against parx in GFLOP/s, AVX2: 16 and 42 for 16x16x16, 53 and 57 for 32x32x32,
/// 80 and 68 for 64x64x64.
inline constexpr std::size_t worth_a_call = 32 * 32 * 32;

template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const T* row, const product_finish<T>& finish) {
  if constexpr (std::same_as<T, float>) {
    if (m * n * k >= worth_a_call) {
      const one_openmp_thread held;
      if (row != nullptr) {
        for (std::size_t i = 0; i < m; ++i) std::copy_n(row, n, c + i * ldc);
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
      finish({c, ldc, 0, 0, m, n});
      return;
    }
  }
  product::gemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, row,
                finish);
}

}  // namespace parx::detail::onednn
