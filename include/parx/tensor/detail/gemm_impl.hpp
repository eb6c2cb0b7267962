// Definition of gemm in matmul.hpp. The compiled form has it for float and double (instances.hpp),
// so that only parx's own files compile the tiles.
#pragma once

#include <parx/tensor/detail/instructions.hpp>
#include <parx/tensor/gemm/gemm.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/tile.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

template <typename T>
  requires std::same_as<T, float> || std::same_as<T, double>
void gemm(op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k, T alpha, const T* a,
          std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const std::type_identity_t<T>* row, std::type_identity_t<product_finish<T>> finish) {
  namespace product = detail::product;
  if (m * n * k >= 1'000'000) detail::warn_of_unused_instructions();
  const auto operand = [](op as, const T* data, std::size_t ld) {
    return as == op::plain ? product::matrix<T>{data, ld, 1} : product::matrix<T>{data, 1, ld};
  };
  const product::addend<T> base = row != nullptr ? product::addend<T>{row, 0, T(1)}
                                  : beta != T(0) ? product::addend<T>{c, ldc, beta}
                                                 : product::addend<T>{};
  product::multiply<product::native_tile<T>>(product::multiplication<T>{
      .m = m, .n = n, .k = k, .alpha = alpha, .a = operand(op_a, a, lda),
      .b = operand(op_b, b, ldb), .base = base, .c = c, .ldc = ldc, .finish = finish});
}

}  // namespace parx
