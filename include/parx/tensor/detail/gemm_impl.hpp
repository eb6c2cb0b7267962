// Definition of gemm in matmul.hpp: the choice of a backend. The compiled form has it for float and
// double (instances.hpp), so that only parx's own files compile the tiles.
#pragma once

#include <parx/tensor/matmul.hpp>

#if defined(PARX_GEMM_ONEDNN)
#include <parx/tensor/detail/gemm_onednn.hpp>
#elif defined(PARX_GEMM_BLAS)
#include <parx/tensor/detail/gemm_blas.hpp>
#else
#include <parx/tensor/detail/instructions.hpp>
#include <parx/tensor/gemm/gemm.hpp>
#endif

namespace parx::inline PARX_ABI {

#if defined(PARX_GEMM_ONEDNN)
namespace gemm_backend = detail::onednn;
#elif defined(PARX_GEMM_BLAS)
namespace gemm_backend = detail::blas;
#else
namespace gemm_backend = detail::product;
#endif

template <typename T>
  requires std::same_as<T, float> || std::same_as<T, double>
void gemm(op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k, T alpha, const T* a,
          std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const std::type_identity_t<T>* row, std::type_identity_t<product_finish<T>> finish) {
  if (m == 0 || n == 0) return;
#if !defined(PARX_GEMM_ONEDNN) && !defined(PARX_GEMM_BLAS)
  if (m * n * k >= 1'000'000) detail::warn_of_unused_instructions();
#endif
  gemm_backend::gemm(op_a == op::transposed, op_b == op::transposed, m, n, k, alpha, a, lda, b, ldb,
                     beta, c, ldc, row, finish);
}

}  // namespace parx
