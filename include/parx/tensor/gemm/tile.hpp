// tile: the part of a product whose sums stay in registers, a few rows by a few vectors of columns.
//
// A step of k loads the vectors of b once and one element of a for each row. The shapes fill the
// registers: with 6 x 2 sums of AVX2's 16, or 12 x 2 of AVX-512's 32 (14 x 2 spill with clang 14),
// two multiply-add units are busy all the time.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <parx/tensor/packet.hpp>
#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Rows x (Vectors of Bytes bytes) of elements.
template <typename Element, std::size_t Bytes, std::size_t Rows, std::size_t Vectors>
struct tile_shape {
  using T = Element;
  using V = typename simd::vector_type<T, Bytes>::type;
  static constexpr std::size_t lanes = Bytes / sizeof(T), rows = Rows, vectors = Vectors,
                               width = lanes * Vectors;
};

#if defined(PARX_VECTORS_AVX512)
template <typename T>
using native_tile = tile_shape<T, 64, 12, 2>;
#elif defined(PARX_VECTORS_AVX2) || !defined(__aarch64__)
template <typename T>
using native_tile = tile_shape<T, simd::register_bytes, 6, 2>;
#else
template <typename T>
using native_tile = tile_shape<T, 16, 8, 3>;
#endif

/// How a tile's rows of a lie in memory.
enum class a_layout {
  anywhere,  ///< by their strides; with one vector only
  dense,     ///< the elements of a row are adjacent
  adjacent,  ///< the elements of a column are adjacent
  packed     ///< element p of row i at a[p * rows + i], and b's rows are `width` apart
};

/// c (rows x vectors) = alpha times the sum of the k terms + base. Pointers to the tile's first
/// elements; steps in elements.
template <typename T>
struct tile_call {
  std::size_t k;
  const T* a;
  std::size_t down, right;  ///< of a: from row to row, from term to term
  const T* b;
  std::size_t b_step;  ///< from term to term
  T alpha;
  const T* base;
  std::size_t base_step;
  T* c;
  std::size_t c_step;
};

/// Keeps a loaded vector in its register: g++ 12 otherwise loads b again for each row of tiles of
/// up to four rows, which then reach 58 GFLOP/s instead of 89.
template <typename V>
[[gnu::always_inline]] inline void hold(V& v) noexcept {
#if defined(__x86_64__)
  __asm__("" : "+v"(v));
#else
  static_cast<void>(v);
#endif
}

// With fixed offsets (dense and packed), four terms at a time take few instructions besides the
// multiply-adds: that matters where another thread shares the core.
template <typename S, std::size_t M, std::size_t N, a_layout Layout>
[[gnu::noinline]] void run_tile(const tile_call<typename S::T>& call) {
  using T = typename S::T;
  using V = typename S::V;
  const T* a = call.a;
  const T* b = call.b;
  const std::size_t b_step = Layout == a_layout::packed ? S::width : call.b_step;
  V sum[M][N] = {};
  // Each pointer serves three rows: one for each would not fit in the registers.
  const std::size_t down = call.down;
  const T* third[(M + 2) / 3];
  for (std::size_t i = 0; i < M; i += 3) third[i / 3] = a + i * down;
  const auto add_terms = [&]<std::size_t Terms>(std::integral_constant<std::size_t, Terms>)
                             __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (std::size_t q = 0; q < Terms; ++q, b += b_step) {
      V right[N];
#pragma GCC unroll 4
      for (std::size_t j = 0; j < N; ++j) {
        std::memcpy(&right[j], b + j * S::lanes, sizeof(V));
        hold(right[j]);
      }
#pragma GCC unroll 16
      for (std::size_t i = 0; i < M; ++i) {
        const T x = Layout == a_layout::packed     ? a[q * M + i]
                    : Layout == a_layout::adjacent ? a[i]
                                                   : third[i / 3][i % 3 * down + q];
        const V left = x - V{};
#pragma GCC unroll 4
        for (std::size_t j = 0; j < N; ++j) sum[i][j] = simd::fma(left, right[j], sum[i][j]);
      }
      if constexpr (Layout == a_layout::adjacent) a += call.right;
    }
    if constexpr (Layout == a_layout::packed) a += Terms * M;
    const std::size_t next = Layout == a_layout::dense ? Terms : call.right;
#pragma GCC unroll 4
    for (const T*& each : third) each += next;
  };
  std::size_t p = 0;
  if constexpr (Layout != a_layout::anywhere) {
#pragma GCC unroll 1
    for (; p + 4 <= call.k; p += 4) add_terms(std::integral_constant<std::size_t, 4>{});
  }
#pragma GCC unroll 1
  for (; p < call.k; ++p) add_terms(std::integral_constant<std::size_t, 1>{});
  const V alpha = call.alpha - V{};
#pragma GCC unroll 16
  for (std::size_t i = 0; i < M; ++i) {
#pragma GCC unroll 4
    for (std::size_t j = 0; j < N; ++j) {
      V base;
      std::memcpy(&base, call.base + i * call.base_step + j * S::lanes, sizeof(V));
      base = simd::fma(alpha, sum[i][j], base);
      std::memcpy(call.c + i * call.c_step + j * S::lanes, &base, sizeof(V));
    }
  }
}

template <typename T>
using tile_function = void (*)(const tile_call<T>&);

/// The tile of `rows` (1 to S::rows) by `vectors` (1 or S::vectors).
template <typename S>
[[nodiscard]] tile_function<typename S::T> tile_of(std::size_t rows, std::size_t vectors,
                                                   a_layout layout) noexcept {
  using enum a_layout;
  using row_of_table = std::array<tile_function<typename S::T>, S::rows>;
  static constexpr auto table = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<row_of_table, 4>{{{run_tile<S, I + 1, S::vectors, dense>...},
                                        {run_tile<S, I + 1, S::vectors, adjacent>...},
                                        {run_tile<S, I + 1, S::vectors, packed>...},
                                        {run_tile<S, I + 1, 1, anywhere>...}}};
  }(std::make_index_sequence<S::rows>());
  const std::size_t kind = vectors == 1         ? 3
                           : layout == packed   ? 2
                           : layout == adjacent ? 1
                                                : 0;
  return table[kind][rows - 1];
}

/// m rows cut into panels of nearly equal height, at most `most`: 32 = 6 + 6 + 5 + 5 + 5 + 5. No
/// row is padded, and four to six rows have enough sums to hide the latency of a multiply-add.
class panels {
 public:
  panels(std::size_t m, std::size_t most) noexcept
      : count_((m + most - 1) / most), low_(count_ == 0 ? 0 : m / count_),
        tall_(count_ == 0 ? 0 : m % count_) {}

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t begin(std::size_t panel) const noexcept {
    return panel * low_ + (panel < tall_ ? panel : tall_);
  }
  [[nodiscard]] std::size_t height(std::size_t panel) const noexcept {
    return low_ + (panel < tall_ ? 1 : 0);
  }

 private:
  std::size_t count_, low_, tall_;  // `tall_` panels of low_ + 1 rows, then those of low_
};

}  // namespace parx::detail::product
