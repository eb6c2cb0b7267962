// bf16_gemm: blocks of a product of bfloat16, divided among threads.
//
//   for each 1024 columns of b                          for each 256 by a task, of a few rows
//     for each block of 512 terms                        packed by all threads: 1 MiB, L2
//       for each task: up to 256 rows of a               by one thread, packed: 128 to 256 KiB
//         for each panel of a tile's rows                  AMX; where sums are in vector registers:
//           for each strip of a tile's columns             strips, 128 or 256 terms of each, panels
//
// Operands are packed along memory, and rounded on the way. No bit depends on the numbers but that
// of a block's terms (bf16_order.hpp).
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/flush_denormals.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/bf16_path.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/task_count.hpp>
#include <parx/tensor/gemm/workspace.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// c = finish(alpha a b + base), as `multiplication` but of bfloat16.
struct bf16_multiplication {
  std::size_t m, n, k;
  float alpha;
  bf16_operand a;  ///< rows and terms
  bf16_operand b;  ///< columns and terms
  addend<float> base;
  float* c;
  std::size_t ldc;
  product_finish<float> finish = {};
};

class bf16_product {
  struct tiles_in_use {
    explicit tiles_in_use(const bf16_path& path) : end(path.end) {
      if (path.begin != nullptr) path.begin();
    }
    ~tiles_in_use() {
      if (end != nullptr) end();
    }
    tiles_in_use(const tiles_in_use&) = delete;
    tiles_in_use& operator=(const tiles_in_use&) = delete;
    void (*end)();
  };

 public:
  bf16_product(const bf16_multiplication& x, const bf16_path& path) noexcept
      : x_(x),
        path_(path),
        a_step_(panel_bytes(path.a_bytes)),
        b_step_(panel_bytes(path.b_bytes)) {}

  void run() const {
    if (x_.m == 0 || x_.n == 0) return;
    const bool is_small = x_.m <= 32 && x_.m * x_.n * divided(x_.k, bf16_step) <= most_direct;
    if (path_.multiply_directly != nullptr && (x_.m <= 4 || is_small)) {
      multiply_directly();
    } else if (x_.m <= few_rows) {
      parallel_for(x_.n, columns_of_a_task(), [&](std::size_t j, std::size_t last) {
        for (; j < last; j += stream) add_columns(j, std::min(stream, last - j));
      });
    } else {
      for (std::size_t j = 0; j < x_.n; j += most_columns) {
        add_columns(j, std::min(most_columns, x_.n - j));
      }
    }
  }

 private:
  static constexpr std::size_t few_rows = 16, stream = 256, most_direct = 256, most_columns = 1024,
                               most_rows = 256, most_sums = 8 * bf16_most_sums;

  [[nodiscard]] static std::size_t divided(std::size_t count, std::size_t by) noexcept {
    return (count + by - 1) / by;
  }
  /// Where rows are few, and reading b takes the time.
  [[nodiscard]] std::size_t columns_of_a_task() const noexcept {
    const std::size_t tasks = wanted_tasks(x_.n * x_.k, work::by_memory);
    return divided(x_.n, tasks * stream) * stream;
  }
  /// Of a packed panel or strip: one line more, so that they begin in different sets of the cache.
  [[nodiscard]] std::size_t panel_bytes(std::size_t of_step) const noexcept {
    return divided(std::min(x_.k, bf16_block), bf16_step) * of_step + 64;
  }

  void multiply_directly() const {
    const std::size_t a_step = divided(x_.k, bf16_step) * bf16_step;
    const workspace<float> a(x_.m * a_step);
    x_.a.values.visit([&](const auto* values) {
      for (std::size_t i = 0; i < x_.m; ++i) {
        const auto* const row = values + i * x_.a.down;
        float* const to = a.data() + i * a_step;
        for (std::size_t p = 0; p < x_.k; ++p) {
          to[p] = operand_of_bits(bits_of_operand(row[p * x_.a.right]));
        }
        std::fill(to + x_.k, to + a_step, 0.0F);
      }
    });
    // Where a column's terms are adjacent, the lines of few columns are used up at once.
    // Of other columns so few that eight terms of each and the next eight are in 32 KiB.
    const std::size_t width =
        x_.b.right == 1 ? 32 : std::min<std::size_t>(256, bf16_most_sums / x_.m / 16 * 16);
    parallel_for(x_.n, columns_of_a_task(), [&](std::size_t first, std::size_t last) {
      alignas(64) float sums[bf16_most_sums];
      for (std::size_t j = first; j < last; j += width) {
        const std::size_t columns = std::min(width, last - j);
        const std::size_t sums_step = divided(columns, 16) * 16;
        for (std::size_t k0 = 0; k0 == 0 || k0 < x_.k; k0 += bf16_block) {
          std::fill_n(sums, x_.m * sums_step, 0.0F);
          path_.multiply_directly({a.data() + k0, a_step, x_.m, columns,
                                   std::min(bf16_block, x_.k - k0), x_.b.from(j, k0), sums,
                                   sums_step});
          add(0, j, x_.m, columns, k0, sums, sums_step);
        }
      }
      x_.finish({x_.c + first, x_.ldc, 0, first, x_.m, last - first});
    });
  }

  /// Adds a block's sums to rows and columns of c.
  void add(std::size_t row, std::size_t column, std::size_t rows, std::size_t columns,
           std::size_t k0, const float* sums, std::size_t sums_step) const {
    float* const c = x_.c + row * x_.ldc + column;
    addend<float> base{c, x_.ldc, 1};
    if (k0 == 0) {
      base = x_.base;
      if (base.data != nullptr) base.data += row * base.step + column;
    }
    path_.add({sums, sums_step, rows, columns, x_.alpha, base, c, x_.ldc});
  }

  /// Columns j to j + columns of c.
  void add_columns(std::size_t j, std::size_t columns) const {
    const workspace<std::byte> packed_b(divided(columns, path_.columns) * b_step_);
    for (std::size_t k0 = 0; k0 == 0 || k0 < x_.k; k0 += bf16_block) {
      const std::size_t terms = std::min(bf16_block, x_.k - k0);
      pack_columns(j, columns, k0, terms, packed_b.data());
      add_block(j, columns, k0, terms, packed_b.data());
    }
  }

  /// Packs rows of an operand, in panels of `height` rows: panel by panel where a row's terms are
  /// adjacent, else all panels of 32 terms after the other.
  static void pack_panels(const bf16_operand& from, bf16_path::pack_function pack,
                          std::size_t height, std::size_t of_step, std::size_t step,
                          std::size_t rows, std::size_t terms, std::byte* to) {
    const flush_denormals scope;
    const std::size_t together = from.right == 1 ? terms : bf16_step;
    for (std::size_t p = 0; p < terms; p += together) {
      for (std::size_t i = 0; i < rows; i += height) {
        pack(from.from(i, p), std::min(height, rows - i), std::min(together, terms - p),
             to + i / height * step + p / bf16_step * of_step);
      }
    }
  }

  void pack_columns(std::size_t j, std::size_t columns, std::size_t k0, std::size_t terms,
                    std::byte* to) const {
    // Of 10 to 20 us a task: whole strips, or, where columns are adjacent, 64 terms of all.
    const bf16_operand b = x_.b.from(j, k0);
    if (b.right == 1) {
      const std::size_t strips = divided(columns, path_.columns);
      parallel_for(strips, 4, [&](std::size_t strip, std::size_t last) {
        const std::size_t first = strip * path_.columns;
        pack_panels(b.from(first, 0), path_.pack_b, path_.columns, path_.b_bytes, b_step_,
                    std::min(columns, last * path_.columns) - first, terms, to + strip * b_step_);
      });
    } else {
      const std::size_t steps = divided(terms, bf16_step);
      parallel_for(
          steps, 65536 / (bf16_step * columns) + 1, [&](std::size_t step, std::size_t last) {
            const std::size_t p = step * bf16_step;
            pack_panels(b.from(0, p), path_.pack_b, path_.columns, path_.b_bytes, b_step_, columns,
                        std::min(terms, last * bf16_step) - p, to + step * path_.b_bytes);
          });
    }
  }

  void add_block(std::size_t j, std::size_t columns, std::size_t k0, std::size_t terms,
                 const std::byte* packed_b) const {
    const std::size_t wanted = wanted_tasks(x_.m * columns * terms, work::by_arithmetic);
    const std::size_t panels = divided(x_.m, path_.rows), strips = divided(columns, path_.columns);
    const std::size_t most = std::min({most_rows / path_.rows, path_.block_of_a / a_step_ + 1,
                                       most_sums / (path_.rows * path_.columns)});
    const std::size_t of_a_task = std::clamp<std::size_t>(divided(panels, wanted), 1, most);
    const std::size_t groups = divided(panels, of_a_task);
    const std::size_t pieces = std::min(strips, divided(wanted, groups));
    const std::size_t width = divided(strips, pieces) * path_.columns;
    const std::size_t height = of_a_task * path_.rows;
    parallel_for(groups * pieces, 1, [&](std::size_t task, std::size_t last) {
      for (; task < last; ++task) {
        const std::size_t i = task % groups * height, at = task / groups * width;
        if (at >= columns) continue;
        add_tiles({i, std::min(height, x_.m - i), j, at, std::min(columns, at + width), k0, terms},
                  packed_b);
      }
    });
  }

  /// Rows i to i + rows, and columns j + begin to j + end.
  struct part {
    std::size_t i, rows, j, begin, end, k0, terms;
  };
  void add_tiles(const part& p, const std::byte* packed_b) const {
    const workspace<std::byte> packed_a(divided(p.rows, path_.rows) * a_step_);
    pack_panels(x_.a.from(p.i, p.k0), path_.pack_a, path_.rows, path_.a_bytes, a_step_, p.rows,
                p.terms, packed_a.data());
    if (path_.terms_at_once < bf16_block) add_by_strips(p, packed_a.data(), packed_b);
    else add_by_panels(p, packed_a.data(), packed_b);
  }

  /// A panel stays in the cache.
  void add_by_panels(const part& p, const std::byte* packed_a, const std::byte* packed_b) const {
    constexpr std::size_t together = 4;
    alignas(64) float sums[together * bf16_most_sums];
    const std::size_t of_tile = path_.rows * path_.columns, width = together * path_.columns;
    const tiles_in_use scope(path_);
    for (std::size_t r = 0; r < p.rows; r += path_.rows) {
      const std::size_t rows = std::min(path_.rows, p.rows - r);
      const std::byte* const a = packed_a + r / path_.rows * a_step_;
      for (std::size_t begin = p.begin; begin < p.end; begin += width) {
        const std::size_t end = std::min(p.end, begin + width);
        float* of_this = sums;
        for (std::size_t at = begin; at < end; at += path_.columns, of_this += of_tile) {
          path_.multiply(divided(p.terms, bf16_step), a, packed_b + at / path_.columns * b_step_,
                         rows, std::min(path_.columns, end - at), of_this);
        }
        of_this = sums;
        for (std::size_t at = begin; at < end; at += path_.columns, of_this += of_tile) {
          add(p.i + r, p.j + at, rows, std::min(path_.columns, end - at), p.k0, of_this,
              path_.columns);
        }
      }
      finish(p, p.i + r, rows, p.begin, p.end);
    }
  }

  /// A strip, or as many of its terms as the cache has room for, stays in the cache.
  void add_by_strips(const part& p, const std::byte* packed_a, const std::byte* packed_b) const {
    constexpr std::size_t finished_together = 4;
    alignas(64) float sums[most_sums];
    const std::size_t of_tile = path_.rows * path_.columns;
    std::size_t unfinished = p.begin;
    for (std::size_t at = p.begin; at < p.end; at += path_.columns) {
      const std::size_t columns = std::min(path_.columns, p.end - at);
      const auto each_panel = [&](auto f) {
        float* of_this = sums;
        for (std::size_t r = 0; r < p.rows; r += path_.rows, of_this += of_tile) {
          f(r, std::min(path_.rows, p.rows - r), of_this);
        }
      };
      std::fill_n(sums, divided(p.rows, path_.rows) * of_tile, 0.0F);
      {
        const flush_denormals flushing;
        for (std::size_t k = 0; k < p.terms; k += path_.terms_at_once) {
          const std::size_t steps = divided(std::min(path_.terms_at_once, p.terms - k), bf16_step);
          const std::byte* const a = packed_a + k / bf16_step * path_.a_bytes;
          const std::byte* const b =
              packed_b + at / path_.columns * b_step_ + k / bf16_step * path_.b_bytes;
          each_panel([&](std::size_t r, std::size_t rows, float* to) {
            path_.multiply(steps, a + r / path_.rows * a_step_, b, rows, columns, to);
          });
        }
      }
      each_panel([&](std::size_t r, std::size_t rows, const float* from) {
        add(p.i + r, p.j + at, rows, columns, p.k0, from, path_.columns);
      });
      const std::size_t end = at + columns;
      if (end < p.end && end - unfinished < finished_together * path_.columns) continue;
      finish(p, p.i, p.rows, unfinished, end);
      unfinished = end;
    }
  }

  /// After the last block of terms; `begin` and `end` are columns of the part.
  void finish(const part& p, std::size_t row, std::size_t rows, std::size_t begin,
              std::size_t end) const {
    if (p.k0 + p.terms < x_.k) return;
    x_.finish({x_.c + row * x_.ldc + p.j + begin, x_.ldc, row, p.j + begin, rows, end - begin});
  }

  const bf16_multiplication& x_;
  const bf16_path& path_;
  std::size_t a_step_, b_step_;  // of a packed panel and strip
};

}  // namespace parx::detail::product
