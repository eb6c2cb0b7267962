// blocking: a product as tiles whose operands are in the caches.
//
//   for each 1024 columns of b                                   one pass over a
//     for each block of 256 terms (order.hpp)                    b's part is packed: 1 MiB of L3
//       for each 144 rows of a                                   packed: half a second-level cache
//         for each strip of a tile's columns                     16 KiB of L1, by AVX-512 32
//           for each panel of a tile's rows: one tile
//
// No bit depends on these numbers but that of terms. Goto, van de Geijn: Anatomy of
// High-Performance Matrix Multiplication (2008).
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/order.hpp>
#include <parx/tensor/gemm/pack.hpp>
#include <parx/tensor/gemm/tile.hpp>
#include <parx/tensor/gemm/workspace.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Which operands are packed, and how much at a time.
struct blocking {
  std::size_t columns = 1024;
  std::size_t rows = 144;
  bool pack_a = false;
  bool pack_b = false;

  /// Packing costs a pass over the operand and pays if its elements are read often. a is read
  /// element by element where it lies, unless its rows are a multiple of 2 KiB apart: then they
  /// share a set of the first-level cache (38 GFLOP/s instead of 90).
  template <typename S>
  [[nodiscard]] static blocking choose(std::size_t m, std::size_t n, std::size_t k,
                                       const matrix<typename S::T>& a,
                                       const matrix<typename S::T>& b) noexcept {
    constexpr std::size_t many = 96;  // columns
    const auto share_sets = [](std::size_t step) {
      return step * sizeof(typename S::T) % 2048 == 0;
    };
    const std::size_t enough = a.right == 1 && !share_sets(a.down)  ? many
                               : a.down == 1 && !share_sets(a.right) ? 2 * many
                                                                     : 4 * S::width;
    blocking result;
    result.pack_a = k >= 16 && n >= enough;
    result.pack_b = b.right != 1 || (m > 24 && k >= 32);
    return result;
  }
};

/// For a product whose finished tiles need nothing more.
struct unfinished {};

/// c = finish(alpha a b + base): a is m x k, b k x n, with dense rows or columns; c is row-major,
/// with `ldc` elements from row to row. finish(values, step, rows, vectors, i, j, valid), unless
/// `unfinished`, gets each tile when its sums are complete and may change whole vectors of it: row
/// r of the tile's `rows` begins at values + r * step, its first element is element (i + r, j) of
/// c, and `valid` of its columns exist in c. base may be c; c must not overlap a and b otherwise.
template <typename S, typename Finish>
class blocked_product {
  using T = typename S::T;

 public:
  blocked_product(std::size_t m, std::size_t n, std::size_t k, T alpha, matrix<T> a, matrix<T> b,
                  addend<T> base, T* c, std::size_t ldc, const Finish& finish,
                  const blocking& how) noexcept
      : n_(n), k_(k), alpha_(alpha), a_(a), b_(b), base_(base), c_(c), ldc_(ldc), finish_(finish),
        how_(how), panels_(m, S::rows), group_(std::max<std::size_t>(how.rows / S::rows, 1)),
        columns_(std::max<std::size_t>(how.columns / S::width, 1) * S::width) {}

  void run() const {
    const std::size_t terms = std::min(k_, block_k);
    const std::size_t widest = std::min(columns_, n_);
    const std::size_t left = how_.pack_a ? std::min(group_, panels_.count()) * S::rows * terms : 0;
    const std::size_t strips = how_.pack_b ? (widest + S::width - 1) / S::width : 1;
    const workspace<T> memory(left + strips * distance(terms) + 2 * panel_slack<T> + line);
    T* const packed_a = memory.data();
    T* const packed_b = packed_a + (left + panel_slack<T> + line - 1) / line * line;
    for (std::size_t j = 0; j < n_; j += columns_) {
      const std::size_t columns = std::min(columns_, n_ - j);
      // A product of no terms is its addend.
      for (std::size_t k0 = 0; k0 == 0 || k0 < k_; k0 += block_k) {
        const block part{j, columns, k0, std::min(block_k, k_ - k0)};
        if (how_.pack_b) pack_columns(part, packed_b);
        multiply(part, packed_a, packed_b);
      }
    }
  }

 private:
  static constexpr std::size_t line = 64 / sizeof(T);

  struct block {
    std::size_t j, columns, k0, terms;
  };
  /// A strip of b or a panel of a as a tile reads it.
  struct side {
    const T* data;
    std::size_t down, right;
  };

  /// From strip to strip of packed columns: one line more than a strip, so that strips begin in
  /// different sets of the cache.
  [[nodiscard]] static std::size_t distance(std::size_t terms) noexcept {
    return terms * S::width + line;
  }

  void pack_columns(const block& part, T* to) const {
    const std::size_t strips = (part.columns + S::width - 1) / S::width;
    const std::size_t step = distance(part.terms);
    std::size_t strip = 0;
    if (b_.right == 1) {
      const std::size_t whole = part.columns / S::width;
      for (; strip < whole; strip += std::min<std::size_t>(8, whole - strip)) {
        pack_strips(b_.from(part.k0, part.j + strip * S::width),
                    std::min<std::size_t>(8, whole - strip), S::width, part.terms,
                    to + strip * step, step);
      }
    }
    for (; strip < strips; ++strip) {
      const std::size_t at = strip * S::width;
      pack_panel(b_.from(part.k0, part.j + at).transposed(),
                 std::min(S::width, part.columns - at), part.terms, S::width, to + strip * step);
    }
  }

  void multiply(const block& part, T* packed_a, T* packed_b) const {
    for (std::size_t first = 0; first < panels_.count(); first += group_) {
      const std::size_t last = std::min(panels_.count(), first + group_);
      for (std::size_t i = first; how_.pack_a && i < last; ++i) {
        pack_panel(a_.from(panels_.begin(i), part.k0), panels_.height(i), part.terms,
                   panels_.height(i), packed_a + (i - first) * S::rows * part.terms);
      }
      for (std::size_t at = 0; at < part.columns; at += S::width) {
        const std::size_t width = std::min(S::width, part.columns - at);
        const side right = strip_at(part, at, width, packed_b);
        for (std::size_t i = first; i < last; ++i) {
          const side left = how_.pack_a
                                ? side{packed_a + (i - first) * S::rows * part.terms, 1,
                                       panels_.height(i)}
                                : side{a_.at(panels_.begin(i), part.k0), a_.down, a_.right};
          add_tile(part, i, at, width, left, right);
        }
      }
    }
  }

  /// The last columns are packed in any case: whole vectors of them would leave b.
  [[nodiscard]] side strip_at(const block& part, std::size_t at, std::size_t width,
                              T* packed_b) const {
    if (how_.pack_b) return {packed_b + at / S::width * distance(part.terms), S::width, 1};
    const matrix<T> strip = b_.from(part.k0, part.j + at);
    if (width == S::lanes || width == S::width) return {strip.data, strip.down, 1};
    pack_panel(strip.transposed(), width, part.terms, S::width, packed_b);
    return {packed_b, S::width, 1};
  }

  void add_tile(const block& part, std::size_t panel, std::size_t at, std::size_t width,
                const side& left, const side& right) const {
    const std::size_t row = panels_.begin(panel), rows = panels_.height(panel), j = part.j + at;
    const std::size_t vectors = width <= S::lanes ? 1 : S::vectors;
    const a_layout layout = how_.pack_a && right.down == S::width ? a_layout::packed
                            : left.right == 1                     ? a_layout::dense
                                                                  : a_layout::adjacent;
    static constexpr T zeros[S::width]{};
    T* const target = c_ + row * ldc_ + j;
    tile_call<T> call{.k = part.terms, .a = left.data, .down = left.down, .right = left.right,
                      .b = right.data, .b_step = right.down, .alpha = alpha_,
                      .base = zeros, .base_step = 0, .c = target, .c_step = ldc_};
    const bool first = part.k0 == 0;
    const bool scaled = first && base_.data != nullptr && base_.factor != T(1);
    if (!first) {
      call.base = target;
      call.base_step = ldc_;
    } else if (base_.data != nullptr) {
      call.base = base_.data + row * base_.step + j;
      call.base_step = base_.step;
    }
    const bool whole = width == vectors * S::lanes;
    alignas(64) T copy[S::rows * S::width];
    if (scaled || (!whole && call.base != zeros)) {
      for (std::size_t r = 0; r < rows; ++r) {
        T* const to = copy + r * S::width;
        const T* const from = call.base + r * call.base_step;
        for (std::size_t q = 0; q < width; ++q) to[q] = scaled ? base_.factor * from[q] : from[q];
        std::fill(to + width, to + S::width, T(0));
      }
      call.base = copy;
      call.base_step = S::width;
    }
    if (!whole) {
      call.c = copy;
      call.c_step = S::width;
    } else {
      // The tile's stores would wait for the lines, which are far apart.
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t q = 0; q < width; q += line) {
          __builtin_prefetch(target + r * ldc_ + q, 1);
        }
      }
    }
    tile_of<S>(rows, vectors, layout)(call);
    if constexpr (!std::is_same_v<Finish, unfinished>) {
      if (part.k0 + part.terms == k_) finish_(call.c, call.c_step, rows, vectors, row, j, width);
    }
    for (std::size_t r = 0; r < rows && !whole; ++r) {
      std::copy_n(copy + r * S::width, width, target + r * ldc_);
    }
  }

  std::size_t n_, k_;
  T alpha_;
  matrix<T> a_, b_;
  addend<T> base_;
  T* c_;
  std::size_t ldc_;
  const Finish& finish_;
  blocking how_;
  panels panels_;
  std::size_t group_;    // panels of a at a time
  std::size_t columns_;  // of b at a time
};

}  // namespace parx::detail::product
