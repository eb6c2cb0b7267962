// operand: what a product reads, what it adds its sums to and where it puts them.
#pragma once

#include <cstddef>

#include <parx/core/abi.hpp>
#include <parx/tensor/gemm/finish.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Element (i, j) is data[i * down + j * right].
template <typename T>
struct matrix {
  const T* data = nullptr;
  std::size_t down = 0, right = 0;

  [[nodiscard]] const T* at(std::size_t i, std::size_t j) const noexcept {
    return data + i * down + j * right;
  }
  [[nodiscard]] matrix from(std::size_t i, std::size_t j) const noexcept {
    return {at(i, j), down, right};
  }
  [[nodiscard]] matrix transposed() const noexcept { return {data, right, down}; }
};

/// What sums are added to: rows of `data`, `step` elements apart (0: one row for all), each element
/// times `factor`. Null: zero.
template <typename T>
struct addend {
  const T* data = nullptr;
  std::size_t step = 0;
  T factor = T(1);

  /// The addend of element (i, j).
  [[nodiscard]] T at(std::size_t i, std::size_t j) const noexcept {
    return data == nullptr ? T(0) : factor * data[i * step + j];
  }
};

/// c = finish(alpha a b + base): a is m x k, b is k x n, each with dense rows or columns; c is
/// row-major, with `ldc` elements from row to row. base may be c; c must not overlap a and b.
template <typename T>
struct multiplication {
  std::size_t m, n, k;
  T alpha;
  matrix<T> a, b;
  addend<T> base;
  T* c;
  std::size_t ldc;
  product_finish<T> finish = {};
};

}  // namespace parx::detail::product
