// pack: copies of operands in the order in which tiles read them.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/transposed_squares.hpp>

namespace parx::inline PARX_ABI::detail::product {

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
