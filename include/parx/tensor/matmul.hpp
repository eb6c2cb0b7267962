// Matrix products: gemm, through which every product of parx goes (its code is in tensor/gemm/),
// and matmul for tensors.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <type_traits>

#include <parx/core/check.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/gemm/bf16_values.hpp>
#include <parx/tensor/gemm/finish.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/dtype.hpp>

namespace parx::inline PARX_ABI {

/// What a product does to an operand first.
enum class op { plain, transposed };

/// c = finish(alpha op(a) op(b) + beta c), all row-major: op(a) is (m, k), op(b) is (k, n), c is
/// (m, n); ld* is the distance between stored rows in elements. With beta = 0 the old contents of c
/// do not matter (not even NaN). A `row` of n elements, a layer's bias, is added to every row of c
/// in place of beta c. c must not overlap a or b. `finish`, such as an activation function, is
/// applied to parts of c while they are in the cache, by several threads at a time.
///
/// Runs on this rank's threads (core/parallel_for.hpp) and adds the terms of each element in the
/// order that tensor/gemm/summation_order.hpp states: beside the values, the bits depend on k
/// alone.
template <typename T>
  requires std::same_as<T, float> || std::same_as<T, double>
void gemm(op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k, T alpha, const T* a,
          std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const std::type_identity_t<T>* row = nullptr,
          std::type_identity_t<product_finish<T>> finish = {});

/// The same with operands rounded to bfloat16, and sums in float in the order that
/// tensor/gemm/bf16_order.hpp states: by AMX where there is one, with the same bits on every
/// processor. Values that are bfloat16 already are read as they are.
void bfloat16_gemm(op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k, float alpha,
                   bf16_values a, std::size_t lda, bf16_values b, std::size_t ldb, float beta,
                   float* c, std::size_t ldc, const float* row = nullptr,
                   product_finish<float> finish = {});

/// Where an operand of a product of T is: of floats, bfloat16 may take their place.
template <typename T>
using operand_values = std::conditional_t<std::is_same_v<T, float>, bf16_values, const T*>;

/// bfloat16_gemm where `products` is dtype::bfloat16 and T is float, else gemm.
template <typename T>
void gemm(dtype products, op op_a, op op_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          std::type_identity_t<operand_values<T>> a, std::size_t lda,
          std::type_identity_t<operand_values<T>> b, std::size_t ldb, T beta, T* c, std::size_t ldc,
          const std::type_identity_t<T>* row = nullptr,
          std::type_identity_t<product_finish<T>> finish = {}) {
  if constexpr (std::is_same_v<T, float>) {
    if (products == dtype::bfloat16) {
      bfloat16_gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, row, finish);
    } else {
      gemm(op_a, op_b, m, n, k, alpha, a.floats(), lda, b.floats(), ldb, beta, c, ldc, row, finish);
    }
  } else {
    gemm(op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, row, finish);
  }
}

namespace detail {

/// The last two axes of a tensor as an operand of gemm.
struct matrix_strides {
  std::size_t rows = 0;
  std::size_t columns = 0;
  op as = op::plain;
  std::size_t ld = 0;
};

/// That of a row-major or column-major matrix; nullopt for any other (both strides above 1), which
/// has to be copied.
template <typename T>
[[nodiscard]] std::optional<matrix_strides> strides_of(const tensor<T>& t) noexcept {
  const std::size_t axis = t.rank() - 2;
  const std::size_t rows = t.shape()[axis], columns = t.shape()[axis + 1];
  const std::size_t down = t.strides()[axis], right = t.strides()[axis + 1];
  if (right == 1 && (down >= columns || rows <= 1)) {
    return matrix_strides{rows, columns, op::plain, std::max(down, columns)};
  }
  if (down == 1 && (right >= rows || columns <= 1)) {
    return matrix_strides{rows, columns, op::transposed, std::max(right, rows)};
  }
  return std::nullopt;
}

[[nodiscard]] inline op flip(op o) noexcept { return o == op::plain ? op::transposed : op::plain; }

}  // namespace detail

/// The axes before the last two.
[[nodiscard]] inline shape batch_shape(const shape& s) {
  return shape(std::span<const std::size_t>(s.begin(), s.rank() - 2));
}

/// c = op(a) op(b) + beta c for each matrix of the batch axes, which are broadcast against c's (c's
/// may not be repeated). All have rank >= 2. `products` as gemm's.
template <typename T>
void batched_gemm(op op_a, const tensor<T>& a, op op_b, const tensor<T>& b, T beta,
                  const tensor<T>& c, dtype products = dtype::float32) {
  const tensor<T> left = detail::strides_of(a) ? a : a.clone();
  const tensor<T> right = detail::strides_of(b) ? b : b.clone();
  const detail::matrix_strides la = *detail::strides_of(left), lb = *detail::strides_of(right),
                              lc = *detail::strides_of(c);
  const op as_a = op_a == op::plain ? la.as : detail::flip(la.as);
  const op as_b = op_b == op::plain ? lb.as : detail::flip(lb.as);
  const std::size_t k = op_a == op::plain ? la.columns : la.rows;
  const shape batch = batch_shape(c.shape());
  const detail::loop_nest<3> nest(
      batch,
      {detail::broadcast_strides(batch_shape(left.shape()), left.strides(), batch),
       detail::broadcast_strides(batch_shape(right.shape()), right.strides(), batch), c.strides()});
  const auto step = nest.run_step();
  const auto multiply = [&](const auto& offset, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      gemm(products, as_a, as_b, lc.rows, lc.columns, k, T(1),
           left.data() + offset[0] + i * step[0], la.ld, right.data() + offset[1] + i * step[1],
           lb.ld, beta, c.data() + offset[2] + i * step[2], lc.ld);
    }
  };
  // Threads share the batch, or, where its products are large, each product.
  constexpr std::size_t large = std::size_t{1} << 22U, task = std::size_t{1} << 20U;
  const std::size_t multiply_adds = std::max<std::size_t>(lc.rows * lc.columns * k, 1);
  if (multiply_adds < large) {
    nest.for_each_run_by_threads(multiply, task / multiply_adds + 1);
  } else {
    nest.for_each_run([&](const auto& offset) { multiply(offset, nest.run_length()); });
  }
}

namespace detail {

/// The shape of a b. Throws usage_error naming both shapes where they do not fit.
[[nodiscard]] inline shape matmul_shape(const shape& a, const shape& b, call_site site) {
  require(a.rank() >= 2 && b.rank() >= 2 && a[a.rank() - 1] == b[b.rank() - 2],
          "matmul at {}: matrices of shapes {} and {} cannot be multiplied: the last axis of the "
          "first and the last but one of the second must exist and be equal",
          site, to_string(a), to_string(b));
  shape result = broadcast_shapes(batch_shape(a), batch_shape(b));
  result.push_back(a[a.rank() - 2]);
  result.push_back(b[b.rank() - 1]);
  return result;
}

}  // namespace detail

/// a (..., m, k) times b (..., k, n) is (..., m, n); the axes before the last two are broadcast.
/// Strided operands (transposed, sliced, permuted heads) are not copied as long as one matrix axis
/// is dense. `products` as gemm's. Throws usage_error naming both shapes.
template <typename T>
[[nodiscard]] tensor<T> matmul(const tensor<T>& a, const tensor<T>& b,
                               call_site site = call_site::current(),
                               dtype products = dtype::float32) {
  tensor<T> c = tensor<T>::empty(detail::matmul_shape(a.shape(), b.shape(), site));
  if (b.rank() == 2 && a.rank() > 2 && a.is_contiguous()) {
    // One tall product instead of many small ones.
    batched_gemm(op::plain, a.reshape({infer, a.extent(-1)}), op::plain, b, T(0),
                 c.reshape({infer, c.extent(-1)}), products);
  } else {
    batched_gemm(op::plain, a, op::plain, b, T(0), c, products);
  }
  return c;
}

}  // namespace parx

#ifndef PARX_SEPARATE_COMPILATION
#include <parx/tensor/detail/bf16_gemm_impl.hpp>
#include <parx/tensor/detail/bf16_processor_impl.hpp>
#include <parx/tensor/detail/gemm_impl.hpp>
#endif
