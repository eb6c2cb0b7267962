// Definition of bfloat16_gemm in matmul.hpp.
#pragma once

#include <parx/tensor/gemm/bf16_gemm.hpp>
#include <parx/tensor/gemm/bf16_processor.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

PARX_INLINE void bfloat16_gemm(op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k,
                               float alpha, bf16_values a, std::size_t lda, bf16_values b,
                               std::size_t ldb, float beta, float* c, std::size_t ldc,
                               const float* row, product_finish<float> finish) {
  namespace product = detail::product;
  const auto operand = [](bool dense_terms, bf16_values values, std::size_t ld) {
    return dense_terms ? product::bf16_operand{values, ld, 1}
                       : product::bf16_operand{values, 1, ld};
  };
  const product::addend<float> base = row != nullptr ? product::addend<float>{row, 0, 1}
                                      : beta != 0    ? product::addend<float>{c, ldc, beta}
                                                     : product::addend<float>{};
  const product::bf16_multiplication x{.m = m,
                                       .n = n,
                                       .k = k,
                                       .alpha = alpha,
                                       .a = operand(op_a == op::plain, a, lda),
                                       .b = operand(op_b == op::transposed, b, ldb),
                                       .base = base,
                                       .c = c,
                                       .ldc = ldc,
                                       .finish = finish};
  product::bf16_product(x, *product::bf16_of_processor().path).run();
}

}  // namespace parx
