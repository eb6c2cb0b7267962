// blocking: a product as tiles whose operands are in the caches, divided among threads.
//
//   for each 1024 columns of b, and as many terms as 1 MiB holds  packed by all threads: L3
//     for each task: up to 144 rows of a, and all columns          by one thread
//       for each block of 256 terms (summation_order.hpp)          packed: half of L2
//         for each strip of a tile's columns                       16 KiB of L1, by AVX-512 32
//           for each panel of a tile's rows: one tile
//
// No bit depends on these numbers but that of a block's terms; so tasks may follow the number of
// threads. Goto, van de Geijn: Anatomy of High-Performance Matrix Multiplication (2008).
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/pack.hpp>
#include <parx/tensor/gemm/summation_order.hpp>
#include <parx/tensor/gemm/task_count.hpp>
#include <parx/tensor/gemm/tile.hpp>
#include <parx/tensor/gemm/workspace.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Which operands are packed, and how much at a time.
struct blocking {
  std::size_t columns = 1024;        ///< of b
  std::size_t rows = 144;            ///< of a
  std::size_t packed_b = 1U << 18U;  ///< elements of b
  bool pack_a = false;
  bool pack_b = false;

  /// Packing costs a pass over the operand and pays if its elements are read often. a is read
  /// element by element where it lies, unless its rows are a multiple of 2 KiB apart: then they
  /// share a set of the first-level cache (38 GFLOP/s instead of 90).
  template <typename S>
  [[nodiscard]] static blocking choose(const multiplication<typename S::T>& x) noexcept {
    constexpr std::size_t many = 96;  // columns
    const auto share_sets = [](std::size_t step) {
      return step * sizeof(typename S::T) % 2048 == 0;
    };
    const std::size_t enough = x.a.right == 1 && !share_sets(x.a.down)  ? many
                               : x.a.down == 1 && !share_sets(x.a.right) ? 2 * many
                                                                         : 4 * S::width;
    blocking result;
    result.pack_a = x.k >= 16 && x.n >= enough;
    result.pack_b = x.b.right != 1 || (x.m > 24 && x.k >= 32);
    return result;
  }
};

template <typename S>
class blocked_product {
  using T = typename S::T;

 public:
  blocked_product(const multiplication<T>& x, const blocking& how) noexcept
      : x_(x), how_(how), panels_(x.m, S::rows),
        columns_(std::min(std::max<std::size_t>(how.columns / S::width, 1),
                          strips_of(x.n)) * S::width),
        terms_(how.pack_b ? std::max<std::size_t>(how.packed_b / (columns_ * block_k), 1) * block_k
                          : std::max<std::size_t>(x.k, 1)) {}

  void run() const {
    const std::size_t blocks = blocks_of(std::min(terms_, x_.k));
    const workspace<T> memory(how_.pack_b ? blocks * strips_of(columns_) * distance() + slack : 0);
    for (std::size_t j = 0; j < x_.n; j += columns_) {
      // A product of no terms is its addend.
      for (std::size_t k0 = 0; k0 == 0 || k0 < x_.k; k0 += terms_) {
        const part p{j, std::min(columns_, x_.n - j), k0, std::min(terms_, x_.k - k0)};
        if (how_.pack_b) pack_columns(p, memory.data());
        multiply(p, memory.data());
      }
    }
  }

 private:
  static constexpr std::size_t line = 64 / sizeof(T);
  static constexpr std::size_t slack = (panel_slack<T> + line - 1) / line * line;
  /// Packed at a time, so that memory is read in long runs.
  static constexpr std::size_t strips_together = 8;

  /// Of columns and terms.
  struct part {
    std::size_t j, columns, k0, terms;
  };
  /// A strip of b or a panel of a as a tile reads it.
  struct side {
    const T* data;
    std::size_t down, right;
  };

  [[nodiscard]] static std::size_t strips_of(std::size_t columns) noexcept {
    return (columns + S::width - 1) / S::width;
  }
  [[nodiscard]] static std::size_t blocks_of(std::size_t terms) noexcept {
    return (terms + block_k - 1) / block_k;
  }
  /// From strip to strip of packed columns: one line more than a strip, so that strips begin in
  /// different sets of the cache.
  [[nodiscard]] std::size_t distance() const noexcept {
    return std::min(x_.k, block_k) * S::width + line;
  }
  [[nodiscard]] T* packed_strip(const part& p, T* packed, std::size_t k0,
                                std::size_t strip) const noexcept {
    return packed + ((k0 - p.k0) / block_k * strips_of(p.columns) + strip) * distance();
  }

  void pack_columns(const part& p, T* to) const {
    const std::size_t groups = (strips_of(p.columns) + strips_together - 1) / strips_together;
    const std::size_t count = groups * blocks_of(p.terms);
    const std::size_t elements = p.columns * p.terms / std::max<std::size_t>(count, 1) + 1;
    const std::size_t of_a_thread = (std::size_t{1} << 16U) / elements;
    parallel_for(count, of_a_thread, [&, this](std::size_t at, std::size_t last) {
      for (; at < last; ++at) {
        const std::size_t first = at % groups * strips_together;
        pack_strips_of(p, p.k0 + at / groups * block_k, first,
                       std::min(strips_of(p.columns), first + strips_together), to);
      }
    });
  }

  /// Strips `strip` to `last` of the block of terms that begins at k0.
  void pack_strips_of(const part& p, std::size_t k0, std::size_t strip, std::size_t last,
                      T* to) const {
    const std::size_t terms = std::min(block_k, p.k0 + p.terms - k0);
    if (x_.b.right == 1) {
      const std::size_t whole = std::min(last, p.columns / S::width);
      if (strip < whole) {
        pack_strips(x_.b.from(k0, p.j + strip * S::width), whole - strip, S::width, terms,
                    packed_strip(p, to, k0, strip), distance());
        strip = whole;
      }
    }
    for (; strip < last; ++strip) {
      const std::size_t at = strip * S::width;
      pack_panel(x_.b.from(k0, p.j + at).transposed(), std::min(S::width, p.columns - at), terms,
                 S::width, packed_strip(p, to, k0, strip));
    }
  }

  void multiply(const part& p, T* packed_b) const {
    const std::size_t wanted = wanted_tasks(x_.m * p.columns * p.terms, work::by_arithmetic);
    const std::size_t group = std::max<std::size_t>(
        std::min(how_.rows / S::rows, (panels_.count() + wanted - 1) / wanted),
        std::min<std::size_t>(panels_.count(), 2));
    const std::size_t groups = (panels_.count() + group - 1) / group;
    const std::size_t cuts = (wanted + groups - 1) / groups;
    const std::size_t strips = (strips_of(p.columns) + cuts - 1) / cuts;
    const std::size_t pieces = (strips_of(p.columns) + strips - 1) / strips;
    parallel_for(groups * pieces, 1, [&](std::size_t task, std::size_t last) {
      for (; task < last; ++task) {
        const std::size_t first = task % groups * group, at = task / groups * strips * S::width;
        multiply(p, first, std::min(panels_.count(), first + group), at,
                 std::min(p.columns, at + strips * S::width), packed_b);
      }
    });
  }

  /// Panels `first` to `last` and the columns from `begin` to `end` of the part's.
  void multiply(const part& p, std::size_t first, std::size_t last, std::size_t begin,
                std::size_t end, T* packed_b) const {
    const std::size_t step = S::rows * std::min(x_.k, block_k);
    const workspace<T> memory((how_.pack_a ? (last - first) * step : 0) +
                              (how_.pack_b ? 0 : distance()) + 2 * slack);
    T* const packed_a = memory.data();
    T* const edge = packed_a + (how_.pack_a ? (last - first) * step + slack : 0);
    for (std::size_t k0 = p.k0; k0 == p.k0 || k0 < p.k0 + p.terms; k0 += block_k) {
      const std::size_t terms = std::min(block_k, p.k0 + p.terms - k0);
      for (std::size_t i = first; how_.pack_a && i < last; ++i) {
        pack_panel(x_.a.from(panels_.begin(i), k0), panels_.height(i), terms, panels_.height(i),
                   packed_a + (i - first) * step);
      }
      for (std::size_t at = begin; at < end; at += S::width) {
        const part strip{p.j + at, std::min(S::width, end - at), k0, terms};
        const side right =
            how_.pack_b ? side{packed_strip(p, packed_b, k0, at / S::width), S::width, 1}
                        : strip_of_b(strip, edge);
        for (std::size_t i = first; i < last; ++i) {
          const side left = how_.pack_a
                                ? side{packed_a + (i - first) * step, 1, panels_.height(i)}
                                : side{x_.a.at(panels_.begin(i), k0), x_.a.down, x_.a.right};
          add_tile(strip, i, left, right);
        }
      }
    }
  }

  /// Where b is not packed; but its last columns are: whole vectors of them would leave b.
  [[nodiscard]] side strip_of_b(const part& strip, T* edge) const {
    const matrix<T> b = x_.b.from(strip.k0, strip.j);
    if (strip.columns == S::lanes || strip.columns == S::width) return {b.data, b.down, 1};
    pack_panel(b.transposed(), strip.columns, strip.terms, S::width, edge);
    return {edge, S::width, 1};
  }

  void add_tile(const part& strip, std::size_t panel, const side& left, const side& right) const {
    const std::size_t row = panels_.begin(panel), rows = panels_.height(panel);
    const std::size_t width = strip.columns, j = strip.j;
    const std::size_t vectors = width <= S::lanes ? 1 : S::vectors;
    const a_layout layout = how_.pack_a && right.down == S::width ? a_layout::packed
                            : left.right == 1                     ? a_layout::dense
                                                                  : a_layout::adjacent;
    static constexpr T zeros[S::width]{};
    T* const target = x_.c + row * x_.ldc + j;
    tile_call<T> call{.k = strip.terms, .a = left.data, .down = left.down, .right = left.right,
                      .b = right.data, .b_step = right.down, .alpha = x_.alpha,
                      .base = zeros, .base_step = 0, .c = target, .c_step = x_.ldc};
    const addend<T>& base = x_.base;
    const bool first = strip.k0 == 0;
    const bool scaled = first && base.data != nullptr && base.factor != T(1);
    if (!first) {
      call.base = target;
      call.base_step = x_.ldc;
    } else if (base.data != nullptr) {
      call.base = base.data + row * base.step + j;
      call.base_step = base.step;
    }
    const bool whole = width == vectors * S::lanes;
    alignas(64) T copy[S::rows * S::width];
    if (scaled || (!whole && call.base != zeros)) {
      for (std::size_t r = 0; r < rows; ++r) {
        T* const to = copy + r * S::width;
        const T* const from = call.base + r * call.base_step;
        for (std::size_t q = 0; q < width; ++q) to[q] = scaled ? base.factor * from[q] : from[q];
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
          __builtin_prefetch(target + r * x_.ldc + q, 1);
        }
      }
    }
    tile_of<S>(rows, vectors, layout)(call);
    for (std::size_t r = 0; r < rows && !whole; ++r) {
      std::copy_n(copy + r * S::width, width, target + r * x_.ldc);
    }
    if (strip.k0 + strip.terms == x_.k) x_.finish({target, x_.ldc, row, j, rows, width});
  }

  const multiplication<T>& x_;
  blocking how_;
  panels panels_;
  std::size_t columns_;  // of b at a time
  std::size_t terms_;    // of b at a time, in whole blocks
};

}  // namespace parx::detail::product
