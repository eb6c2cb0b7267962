// few_rows: products of one to three rows with a matrix, in the order of
// summation_order.hpp.
//
// A linear layer for one token is such a product. Each element of the matrix is used once, so
// packing it would take longer than the product: it is read in the order in which it lies in
// memory, and the rate is that of memory. The lines that come next are asked for in time, because
// what is read are many short runs, which the processor does not foresee.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/summation_order.hpp>
#include <parx/tensor/gemm/task_count.hpp>
#include <parx/tensor/gemm/transposed_squares.hpp>
#include <parx/tensor/gemm/workspace.hpp>

namespace parx::inline PARX_ABI::detail::product {

inline constexpr std::size_t most_few_rows = 3;

/// `Count` columns `apart` elements apart. Two pointers for eight of them stay in registers, and
/// x86 adds a register times 1, 2 or 4 to them; the compiler would keep an address for each column.
template <typename T, std::size_t Count>
class few_columns {
 public:
  [[gnu::always_inline]] few_columns(const T* first, std::size_t apart) noexcept : apart_(apart) {
#pragma GCC unroll 2
    for (std::size_t e = 0; e < eights; ++e) {
      first_[e] = first + e * 8 * apart;
      fourth_[e] = first_[e] + (Count > 3 ? 3 : 0) * apart;
#if defined(__x86_64__)
      __asm__("" : "+r"(first_[e]), "+r"(fourth_[e]));
#endif
    }
  }
  [[nodiscard, gnu::always_inline]] const T* operator[](std::size_t column) const noexcept {
    const std::size_t e = column / 8, q = column % 8;
    return q == 3 || q >= 5 ? fourth_[e] + (q - 3) * apart_ : first_[e] + q * apart_;
  }

 private:
  static constexpr std::size_t eights = (Count + 7) / 8;
  const T *first_[eights], *fourth_[eights];
  std::size_t apart_;
};

/// A product of `Rows` rows. a must have dense rows.
template <std::size_t Rows, typename T>
class few_rows_product {
 public:
  explicit few_rows_product(const multiplication<T>& x) noexcept : x_(x) {}

  /// Columns `first` to `last` of c.
  void compute(std::size_t first, std::size_t last) const {
    const bool is_dense_down = x_.b.right != 1;
    const std::size_t width = is_dense_down ? group : run;
    for (std::size_t j = first; j < last; j += width) {
      const std::size_t columns = std::min(width, last - j);
      if (is_dense_down) add_columns(j, columns);
      else add_rows(j, columns);
    }
    x_.finish({x_.c + first, x_.ldc, 0, first, Rows, last - first});
  }

 private:
  using V = wide_vector<T>;
  using wide = typename simd::vector_type<T>::type;
  static constexpr std::size_t side = wide_side<T>, group = 128 / sizeof(T),
                               lanes = sizeof(wide) / sizeof(T), line = 64 / sizeof(T),
                               run = 4096 / sizeof(T);

  /// c[i] = the addend of the columns from j on.
  template <std::size_t Width>
  void load_base(std::size_t j, std::size_t columns, T (&c)[Rows][Width]) const {
    for (std::size_t i = 0; i < Rows; ++i) {
      if (x_.base.data == nullptr) {
        std::fill_n(c[i], columns, T(0));
      } else {
        for (std::size_t q = 0; q < columns; ++q) c[i][q] = x_.base.at(i, j + q);
      }
    }
  }
  template <std::size_t Width>
  void store_result(std::size_t j, std::size_t columns, const T (&c)[Rows][Width]) const {
    for (std::size_t i = 0; i < Rows; ++i) std::copy_n(c[i], columns, x_.c + i * x_.ldc + j);
  }

  // The rows of b are dense: sums of a run of columns are kept in the first-level cache.

  void add_rows(std::size_t j, std::size_t columns) const {
    const wide factor = x_.alpha - wide{};
    T c[Rows][run];
    load_base(j, columns, c);
    for (std::size_t i = 0; i < Rows; ++i) std::fill(c[i] + columns, c[i] + run, T(0));
    for (std::size_t k0 = 0; k0 < x_.k; k0 += block_k) {
      const std::size_t end = std::min(x_.k, k0 + block_k);
      constexpr std::size_t together = 4;  // terms, while a sum is in its register
      wide sum[Rows][run / lanes];
      for (auto& row : sum) std::fill_n(row, (columns + lanes - 1) / lanes, wide{});
      std::size_t p = k0;
      for (; p + together <= end; p += together) add_terms<together>(p, j, columns, sum);
      for (; p < end; ++p) add_terms<1>(p, j, columns, sum);
      for (std::size_t i = 0; i < Rows; ++i) {
        for (std::size_t s = 0; s * lanes < columns; ++s) {
          wide before;
          std::memcpy(&before, c[i] + s * lanes, sizeof before);
          before = simd::fma(factor, sum[i][s], before);
          std::memcpy(c[i] + s * lanes, &before, sizeof before);
        }
      }
    }
    store_result(j, columns, c);
  }
  template <std::size_t Terms>
  [[gnu::always_inline]] void add_terms(std::size_t p, std::size_t j, std::size_t columns,
                                        wide (&sum)[Rows][run / lanes]) const noexcept {
    wide left[Rows][Terms];
    for (std::size_t i = 0; i < Rows; ++i) {
      for (std::size_t q = 0; q < Terms; ++q) left[i][q] = *x_.a.at(i, p + q) - wide{};
    }
    const T* from = x_.b.at(p, j);
    const std::size_t ahead = p + 2 * Terms <= x_.k ? Terms * x_.b.down : 0;
    std::size_t s = 0;
    for (; (s + 1) * lanes <= columns; ++s, from += lanes) {
#pragma GCC unroll 4
      for (std::size_t q = 0; q < Terms; ++q) {
        wide right;
        std::memcpy(&right, from + q * x_.b.down, sizeof right);
        __builtin_prefetch(from + q * x_.b.down + ahead);
#pragma GCC unroll 3
        for (std::size_t i = 0; i < Rows; ++i) {
          sum[i][s] = simd::fma(left[i][q], right, sum[i][s]);
        }
      }
    }
    for (std::size_t q = 0; q < Terms && s * lanes < columns; ++q) {
      wide right{};
      for (std::size_t c = 0; s * lanes + c < columns; ++c) right[c] = from[q * x_.b.down + c];
      for (std::size_t i = 0; i < Rows; ++i) sum[i][s] = simd::fma(left[i][q], right, sum[i][s]);
    }
  }

  // The columns of b are dense: squares of them are transposed in registers, those of a group in
  // turn, so that their sums do not wait for each other.

  void add_columns(std::size_t j, std::size_t columns) const {
    const V factor = x_.alpha - V{};
    T c[Rows][group] = {};
    load_base(j, columns, c);
    for (std::size_t k0 = 0; k0 < x_.k; k0 += block_k) {
      V sum[group / side][Rows] = {};
      const std::size_t end = std::min(x_.k, k0 + block_k);
      std::size_t p = k0;
      // A line is used up at once: lines of columns 4 KiB apart share a set of the cache.
      for (; p + line <= end; p += line) {
        const std::size_t ahead = line_ahead(j, p);
        for (std::size_t at = 0; at < columns; at += side) {
          const T* const from = x_.b.at(p, j + at);
          if (at + side <= columns) {
            add_line(x_.a.at(0, p), from, x_.b.right, ahead, sum[at / side]);
          } else {
            alignas(64) T copy[side * line] = {};
            for (std::size_t q = 0; at + q < columns; ++q) {
              std::copy_n(from + q * x_.b.right, line, copy + q * line);
            }
            add_line(x_.a.at(0, p), copy, line, 0, sum[at / side]);
          }
        }
      }
      for (; p < end; ++p) {
        for (std::size_t at = 0; at < columns; at += side) {
          V right{};
          for (std::size_t q = 0; q < side && at + q < columns; ++q) {
            right[q] = *x_.b.at(p, j + at + q);
          }
          multiply_add(x_.a.at(0, p), right, sum[at / side]);
        }
      }
      for (std::size_t i = 0; i < Rows; ++i) {
        for (std::size_t t = 0; t < group / side; ++t) {
          T* const to = c[i] + t * side;
          V before;
          std::memcpy(&before, to, sizeof before);
          before = simd::fma(factor, sum[t][i], before);
          std::memcpy(to, &before, sizeof before);
        }
      }
    }
    store_result(j, columns, c);
  }
  /// A line of each of `side` columns, which begin at `from` and are `apart`, times the terms from
  /// `left` on. Asks for the lines that are `ahead` of them.
  [[gnu::always_inline]] void add_line(const T* left, const T* from, std::size_t apart,
                                       std::size_t ahead, V (&sum)[Rows]) const noexcept {
    if (ahead != 0) {
      const few_columns<T, side> next(from + ahead, apart);
#pragma GCC unroll 16
      for (std::size_t q = 0; q < side; ++q) __builtin_prefetch(next[q], 0, 2);
    }
    const few_columns<T, side> column(from, apart);
#pragma GCC unroll 4
    for (std::size_t part = 0; part < line; part += side) {
      wide_square<T> r;
      load_wide_transposed<T>(r, [&](std::size_t q) __attribute__((always_inline)) {
        return column[q] + part;
      });
#pragma GCC unroll 16
      for (std::size_t q = 0; q < side; ++q) multiply_add(left + part + q, r[q], sum);
    }
  }
  /// From term p of column j to one that comes some lines later, in the column or the next group.
  /// 0: a matrix of so few elements is in the second-level cache already.
  [[nodiscard]] std::size_t line_ahead(std::size_t j, std::size_t p) const noexcept {
    constexpr std::size_t ahead = 8 * line;
    if (x_.k * x_.n <= std::size_t{1} << 16U) return 0;
    if (p + ahead < x_.k) return ahead;
    return x_.k >= ahead && j + 2 * group <= x_.n ? group * x_.b.right + ahead - x_.k : 0;
  }
  [[gnu::always_inline]] void multiply_add(const T* left, const V& right,
                                           V (&sum)[Rows]) const noexcept {
#pragma GCC unroll 3
    for (std::size_t i = 0; i < Rows; ++i) {
      sum[i] = simd::fma(V(left[i * x_.a.down] - V{}), right, sum[i]);
    }
  }

  const multiplication<T>& x_;
};

/// A product of 1 to most_few_rows rows.
template <typename T>
void multiply_few_rows(const multiplication<T>& x) {
  const bool is_dense = x.a.right == 1;
  const workspace<T> memory(is_dense ? 0 : x.m * x.k);
  multiplication<T> dense = x;
  if (!is_dense) {
    for (std::size_t i = 0; i < x.m; ++i) {
      for (std::size_t p = 0; p < x.k; ++p) memory.data()[i * x.k + p] = *x.a.at(i, p);
    }
    dense.a = {memory.data(), x.k, 1};
  }
  const std::size_t tasks = wanted_tasks(x.n * x.k, work::by_memory);
  const std::size_t grain = ((x.n + tasks - 1) / tasks + 255) / 256 * 256;
  parallel_for(x.n, grain, [&](std::size_t first, std::size_t last) {
    if (x.m == 1) few_rows_product<1, T>(dense).compute(first, last);
    else if (x.m == 2) few_rows_product<2, T>(dense).compute(first, last);
    else few_rows_product<3, T>(dense).compute(first, last);
  });
}

}  // namespace parx::detail::product
