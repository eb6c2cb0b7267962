// few_rows: products of one to three rows with a matrix, in the order of order.hpp.
//
// A linear layer for one token is such a product. Each element of the matrix is used once, so
// packing it would take longer than the product: it is read in the order in which it lies in
// memory, and the rate is that of memory.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/order.hpp>
#include <parx/tensor/gemm/pack.hpp>

namespace parx::inline PARX_ABI::detail::product {

inline constexpr std::size_t most_few_rows = 3;

/// The sums of one block of terms, for Rows rows of a and at most `width` columns of b.
template <typename T, std::size_t Rows>
class few_sums {
 public:
  using V = square_vector<T>;
  static constexpr std::size_t side = square_side<T>, in_turn = 4, group = in_turn * side,
                               width = 8 * group;

  few_sums(matrix<T> a, std::size_t terms) noexcept : terms_(terms) {
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t p = 0; p < terms; ++p) left_[i][p] = *a.at(i, p);
    }
  }

  [[nodiscard]] const V& of(std::size_t row, std::size_t square) const noexcept {
    return sum_[row][square];
  }

  /// With `columns` columns of a matrix whose rows are dense.
  void add_rows(matrix<T> b, std::size_t columns) noexcept {
    constexpr std::size_t together = 4;  // terms, while a sum is in its register
    std::size_t p = 0;
    for (; p + together <= terms_; p += together) add_dense<together>(b, p, columns);
    for (; p < terms_; ++p) add_dense<1>(b, p, columns);
  }
  /// With columns that are dense: squares of them are transposed in registers, a few in turn, so
  /// that their sums do not wait for each other. Columns a multiple of 1 KiB apart share sets of
  /// the cache and are copied first, as are the last columns, which do not fill their squares.
  void add_columns(matrix<T> b, std::size_t columns) noexcept {
    constexpr std::size_t copied = 64, step = copied + 64 / sizeof(T);  // terms
    alignas(64) T copy[group * step];
    for (std::size_t c = 0; c < columns; c += group) {
      const std::size_t count = std::min(group, columns - c);
      const T* const from = b.at(0, c);
      group_sums sum{};
      if (count == group && b.right * sizeof(T) % 1024 != 0) {
        add_group(from, b.right, 0, terms_, sum);
      } else {
        for (std::size_t p = 0; p < terms_; p += copied) {
          const std::size_t terms = std::min(copied, terms_ - p);
          for (std::size_t q = 0; q < group; ++q) {
            std::copy_n(from + std::min(q, count - 1) * b.right + p, terms, copy + q * step);
          }
          add_group(copy, step, p, terms, sum);
        }
      }
      for (std::size_t i = 0; i < Rows; ++i) {
        for (std::size_t t = 0; t < in_turn; ++t) sum_[i][c / side + t] = sum[t][i];
      }
    }
  }

 private:
  template <std::size_t Terms>
  [[gnu::always_inline]] void add_dense(matrix<T> b, std::size_t p, std::size_t columns) noexcept {
    V left[Rows][Terms];
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t q = 0; q < Terms; ++q) left[i][q] = left_[i][p + q] - V{};
    }
    const T* from = b.at(p, 0);
    std::size_t s = 0;
    for (; (s + 1) * side <= columns; ++s, from += side) {
#pragma GCC unroll 4
      for (std::size_t q = 0; q < Terms; ++q) {
        const V right = load_side(from + q * b.down);
#pragma GCC unroll 3
        for (std::size_t i = 0; i < Rows; ++i) {
          sum_[i][s] = simd::fma(left[i][q], right, sum_[i][s]);
        }
      }
    }
    for (std::size_t q = 0; q < Terms && s * side < columns; ++q) {
      V right{};
      for (std::size_t c = 0; s * side + c < columns; ++c) right[c] = from[q * b.down + c];
      for (std::size_t i = 0; i < Rows; ++i) {
        sum_[i][s] = simd::fma(left[i][q], right, sum_[i][s]);
      }
    }
  }
  using group_sums = V[in_turn][Rows];
  /// The terms from `first` on, which begin at `from`, of a group of columns, `apart` elements from
  /// one to the next.
  [[gnu::always_inline]] void add_group(const T* from, std::size_t apart, std::size_t first,
                                        std::size_t terms, group_sums& sum) const noexcept {
    std::size_t p = 0;
    for (; p + side <= terms; p += side) {
#pragma GCC unroll 4
      for (std::size_t t = 0; t < in_turn; ++t) {
        add_square(from + p + t * side * apart, apart, first + p, sum[t]);
      }
    }
    for (; p < terms; ++p) {
      for (std::size_t t = 0; t < in_turn; ++t) {
        V right{};
        for (std::size_t q = 0; q < side; ++q) right[q] = from[(t * side + q) * apart + p];
        multiply_add(first + p, right, sum[t]);
      }
    }
  }
  /// The terms from p on of the `side` columns at `from`, `apart` elements apart.
  [[gnu::always_inline]] void add_square(const T* from, std::size_t apart, std::size_t p,
                                         V (&sum)[Rows]) const noexcept {
    square<T> r;
    load_transposed(r, [&](std::size_t c)
                           __attribute__((always_inline)) { return from + c * apart; });
#pragma GCC unroll 8
    for (std::size_t q = 0; q < side; ++q) multiply_add(p + q, r[q], sum);
  }
  [[gnu::always_inline]] void multiply_add(std::size_t term, const V& right,
                                           V (&sum)[Rows]) const noexcept {
#pragma GCC unroll 3
    for (std::size_t i = 0; i < Rows; ++i) {
      sum[i] = simd::fma(V(left_[i][term] - V{}), right, sum[i]);
    }
  }

  std::size_t terms_;
  V sum_[Rows][width / side] = {};
  T left_[Rows][block_k];
};

/// A product of `Rows` rows.
template <std::size_t Rows, typename T>
void multiply_few_rows(const multiplication<T>& x) {
  using V = square_vector<T>;
  constexpr std::size_t side = square_side<T>, width = few_sums<T, Rows>::width;
  const V factor = x.alpha - V{};
  for (std::size_t j = 0; j < x.n; j += width) {
    const std::size_t columns = std::min(width, x.n - j);
    T c[Rows][width] = {};
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t q = 0; q < columns; ++q) c[i][q] = x.base.at(i, j + q);
    }
    for (std::size_t k0 = 0; k0 < x.k; k0 += block_k) {
      few_sums<T, Rows> block(x.a.from(0, k0), std::min(block_k, x.k - k0));
      if (x.b.right == 1) block.add_rows(x.b.from(k0, j), columns);
      else block.add_columns(x.b.from(k0, j), columns);
      for (std::size_t i = 0; i < Rows; ++i) {
        for (std::size_t s = 0; s * side < columns; ++s) {
          T* const to = c[i] + s * side;
          store_side(to, simd::fma(factor, block.of(i, s), load_side(to)));
        }
      }
    }
    for (std::size_t i = 0; i < Rows; ++i) std::copy_n(c[i], columns, x.c + i * x.ldc + j);
    x.finish({x.c + j, x.ldc, 0, j, Rows, columns});
  }
}

/// The same with a number of rows from 1 to most_few_rows.
template <typename T>
void multiply_few_rows(const multiplication<T>& x) {
  if (x.m == 1) return multiply_few_rows<1>(x);
  if (x.m == 2) return multiply_few_rows<2>(x);
  multiply_few_rows<3>(x);
}

}  // namespace parx::detail::product
