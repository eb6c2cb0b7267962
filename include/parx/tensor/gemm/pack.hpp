// pack: copies of operands in the order in which tiles read them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <parx/tensor/gemm/operand.hpp>
#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Squares of elements are transposed in registers: 8 x 8 floats or 4 x 4 doubles with AVX.
inline constexpr std::size_t square_bytes = simd::register_bytes >= 32 ? 32 : 16;
template <typename T>
inline constexpr std::size_t square_side = square_bytes / sizeof(T);
template <typename T>
using square_vector = typename simd::vector_type<T, square_bytes>::type;
template <typename T>
using square = square_vector<T>[square_side<T>];

template <typename T>
[[nodiscard, gnu::always_inline]] inline square_vector<T> load_side(const T* from) noexcept {
  square_vector<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <typename T>
[[gnu::always_inline]] inline void store_side(T* to, const square_vector<T>& v) noexcept {
  std::memcpy(to, &v, sizeof v);
}

// r[p] = element p of row(0), of row(1), ...: as many rows and elements as a square has sides.

#if defined(PARX_VECTORS_AVX512) || defined(PARX_VECTORS_AVX2)

/// The four floats at `low` and at `high`: a load into one half of a register needs no shuffle.
[[nodiscard, gnu::always_inline]] inline square_vector<float> load_halves(
    const float* low, const float* high) noexcept {
  return square_vector<float>(
      _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1));
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<float>& r, Row row) noexcept {
#pragma GCC unroll 2
  for (std::size_t p = 0; p < 8; p += 4) {
    const auto r04 = load_halves(row(0) + p, row(4) + p), r15 = load_halves(row(1) + p, row(5) + p);
    const auto r26 = load_halves(row(2) + p, row(6) + p), r37 = load_halves(row(3) + p, row(7) + p);
    const auto low_01 = __builtin_shufflevector(r04, r15, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto high_01 = __builtin_shufflevector(r04, r15, 2, 10, 3, 11, 6, 14, 7, 15);
    const auto low_23 = __builtin_shufflevector(r26, r37, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto high_23 = __builtin_shufflevector(r26, r37, 2, 10, 3, 11, 6, 14, 7, 15);
    r[p] = __builtin_shufflevector(low_01, low_23, 0, 1, 8, 9, 4, 5, 12, 13);
    r[p + 1] = __builtin_shufflevector(low_01, low_23, 2, 3, 10, 11, 6, 7, 14, 15);
    r[p + 2] = __builtin_shufflevector(high_01, high_23, 0, 1, 8, 9, 4, 5, 12, 13);
    r[p + 3] = __builtin_shufflevector(high_01, high_23, 2, 3, 10, 11, 6, 7, 14, 15);
  }
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<double>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  const auto r2 = load_side(row(2)), r3 = load_side(row(3));
  const auto even_01 = __builtin_shufflevector(r0, r1, 0, 4, 2, 6);
  const auto odd_01 = __builtin_shufflevector(r0, r1, 1, 5, 3, 7);
  const auto even_23 = __builtin_shufflevector(r2, r3, 0, 4, 2, 6);
  const auto odd_23 = __builtin_shufflevector(r2, r3, 1, 5, 3, 7);
  r[0] = __builtin_shufflevector(even_01, even_23, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(odd_01, odd_23, 0, 1, 4, 5);
  r[2] = __builtin_shufflevector(even_01, even_23, 2, 3, 6, 7);
  r[3] = __builtin_shufflevector(odd_01, odd_23, 2, 3, 6, 7);
}

#else

template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<float>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  const auto r2 = load_side(row(2)), r3 = load_side(row(3));
  const auto low_01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
  const auto high_01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
  const auto low_23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
  const auto high_23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
  r[0] = __builtin_shufflevector(low_01, low_23, 0, 1, 4, 5);
  r[1] = __builtin_shufflevector(low_01, low_23, 2, 3, 6, 7);
  r[2] = __builtin_shufflevector(high_01, high_23, 0, 1, 4, 5);
  r[3] = __builtin_shufflevector(high_01, high_23, 2, 3, 6, 7);
}
template <typename Row>
[[gnu::always_inline]] inline void load_transposed(square<double>& r, Row row) noexcept {
  const auto r0 = load_side(row(0)), r1 = load_side(row(1));
  r[0] = __builtin_shufflevector(r0, r1, 0, 2);
  r[1] = __builtin_shufflevector(r0, r1, 1, 3);
}

#endif

/// What a panel may write behind its end, in elements.
template <typename T>
inline constexpr std::size_t panel_slack = square_side<T>;

/// The panel's rows are adjacent in memory: from.down == 1.
template <typename T>
void pack_adjacent(matrix<T> from, std::size_t count, std::size_t k, std::size_t step, T* to) {
  constexpr std::size_t side = square_side<T>;
  const std::size_t whole = count / side * side;
  for (std::size_t p = 0; p < k; ++p) {
    const T* const f = from.at(0, p);
    T* const t = to + p * step;
    for (std::size_t i = 0; i < whole; i += side) store_side(t + i, load_side(f + i));
    if (whole == step) continue;
    if (step == count && p + 1 < k && from.right >= side) {
      store_side(t + whole, load_side(f + whole));  // the next term overwrites the excess
      continue;
    }
    std::copy(f + whole, f + count, t + whole);
    std::fill(t + count, t + step, T(0));
  }
}

/// to[p * step + i] = element (i, p) of `from` for i < count, p < k: a panel of rows of a, or, of
/// from = b.transposed(), of columns of b. Elements from `count` to `step` become 0. May write
/// panel_slack elements behind the panel.
template <typename T>
void pack_panel(matrix<T> from, std::size_t count, std::size_t k, std::size_t step, T* to) {
  constexpr std::size_t side = square_side<T>;
  if (from.down == 1) return pack_adjacent(from, count, k, step, to);
  std::size_t done = 0;
  if (from.right == 1) {
    // Squares from the last on: what the last writes too much, those before it overwrite.
    const std::size_t squares = step == count ? (count + side - 1) / side : count / side;
    for (std::size_t s = squares; s-- > 0;) {
      const std::size_t first = s * side, rows = std::min(side, count - first);
      const T* row[side];
      for (std::size_t i = 0; i < side; ++i) row[i] = from.at(first + std::min(i, rows - 1), 0);
      std::size_t p = 0;
      for (; p + side <= k; p += side) {
        square<T> r;
        load_transposed(r, [&](std::size_t i)
                               __attribute__((always_inline)) { return row[i] + p; });
#pragma GCC unroll 8
        for (std::size_t i = 0; i < side; ++i) store_side(to + (p + i) * step + first, r[i]);
      }
      for (; p < k; ++p) {
        for (std::size_t i = 0; i < rows; ++i) to[p * step + first + i] = row[i][p];
      }
    }
    done = std::min(squares * side, count);
  }
  for (std::size_t p = 0; p < k && done < step; ++p) {
    for (std::size_t i = done; i < step; ++i) to[p * step + i] = i < count ? *from.at(i, p) : T(0);
  }
}

/// `strips` panels of `width` columns of a row-major b, `distance` elements apart: all at once, so
/// that memory is read in long runs.
template <typename T>
void pack_strips(matrix<T> from, std::size_t strips, std::size_t width, std::size_t k, T* to,
                 std::size_t distance) {
  constexpr std::size_t side = square_side<T>;
  for (std::size_t p = 0; p < k; ++p) {
    const T* f = from.at(p, 0);
    for (std::size_t s = 0; s < strips; ++s, f += width) {
      T* const t = to + s * distance + p * width;
      std::size_t i = 0;
      for (; i + side <= width; i += side) store_side(t + i, load_side(f + i));
      std::copy(f + i, f + width, t + i);
    }
  }
}

}  // namespace parx::detail::product
