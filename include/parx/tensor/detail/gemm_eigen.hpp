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

// The factor stands at the left operand, where Eigen folds it into the product without a temporary.
// Only as a sum: Eigen, too, makes c = a * b out of zeros and c += a * b, and every expression of
// products costs its reader's compiler half a second.
template <typename Target, typename Left, typename Right, typename T>
void add(Target& c, const Left& a, const Right& b, T alpha) {
  c.noalias() += (alpha * a) * b;
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
  if (!transpose_a && !transpose_b) add(target, left, right, alpha);
  if (!transpose_a && transpose_b) add(target, left, right.transpose(), alpha);
  if (transpose_a && !transpose_b) add(target, left.transpose(), right, alpha);
  if (transpose_a && transpose_b) add(target, left.transpose(), right.transpose(), alpha);
}

}  // namespace parx::detail::eigen
