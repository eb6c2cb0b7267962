// The matrix product by Eigen. The only file of parx that includes Eigen.
#pragma once

#include <cstddef>

#include <Eigen/Core>

namespace parx::detail::eigen {

template <typename T>
using matrix_map = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
                              Eigen::Unaligned, Eigen::OuterStride<>>;
template <typename T>
using const_matrix_map =
    Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>,
               Eigen::Unaligned, Eigen::OuterStride<>>;

// c += alpha a b, which Eigen's expressions come down to: with them, each of the four forms takes a
// compiler half a second more.
template <typename Target, typename Left, typename Right, typename T>
void add(Target& c, const Left& a, const Right& b, T alpha) {
  Eigen::internal::generic_product_impl<Left, Right, Eigen::DenseShape, Eigen::DenseShape,
                                        Eigen::GemmProduct>::scaleAndAddTo(c, a, b, alpha);
}

/// Products with a smaller sum of extents are not worth packing, as Eigen has found.
inline constexpr std::size_t worth_packing = 20;

/// The same for a few numbers: element (i, j) of a is a[i * a_down + j * a_right].
template <typename T>
void add_few(std::size_t m, std::size_t n, std::size_t k, T alpha, const T* a, std::size_t a_down,
             std::size_t a_right, const T* b, std::size_t b_down, std::size_t b_right, T* c,
             std::size_t ldc) {
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t p = 0; p < k; ++p) {
      const T factor = alpha * a[i * a_down + p * a_right];
      for (std::size_t j = 0; j < n; ++j) {
        c[i * ldc + j] += factor * b[p * b_down + j * b_right];
      }
    }
  }
}

template <typename T>
void gemm(bool transpose_a, bool transpose_b, std::size_t m, std::size_t n, std::size_t k, T alpha,
          const T* a, std::size_t lda, const T* b, std::size_t ldb, T beta, T* c, std::size_t ldc) {
  using index = Eigen::Index;
  const auto map = [](const T* data, std::size_t rows, std::size_t columns, std::size_t ld) {
    return const_matrix_map<T>(data, static_cast<index>(rows), static_cast<index>(columns),
                               Eigen::OuterStride<>(static_cast<index>(ld)));
  };
  const auto left = transpose_a ? map(a, k, m, lda) : map(a, m, k, lda);
  const auto right = transpose_b ? map(b, n, k, ldb) : map(b, k, n, ldb);
  matrix_map<T> target(c, static_cast<index>(m), static_cast<index>(n),
                       Eigen::OuterStride<>(static_cast<index>(ldc)));
  if (beta == T(0)) {
    target.setZero();
  } else if (beta != T(1)) {
    target *= beta;
  }
  if (m + n + k < worth_packing) {
    return add_few(m, n, k, alpha, a, transpose_a ? 1 : lda, transpose_a ? lda : 1, b,
                   transpose_b ? 1 : ldb, transpose_b ? ldb : 1, c, ldc);
  }
  if (!transpose_a && !transpose_b) add(target, left, right, alpha);
  if (!transpose_a && transpose_b) add(target, left, right.transpose(), alpha);
  if (transpose_a && !transpose_b) add(target, left.transpose(), right, alpha);
  if (transpose_a && transpose_b) add(target, left.transpose(), right.transpose(), alpha);
}

}  // namespace parx::detail::eigen
