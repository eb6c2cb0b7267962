// bf16_path: one way to compute products of bfloat16: how it packs operands, and its tile of sums.
//
// A product packs the rows of a tile (a panel of a) and its columns (a strip of b) for 32 terms
// after the other, and asks for the sums of a tile over at most 512 terms. Which path it takes is
// decided when the program runs (bf16_processor.hpp), so functions of a path name the instructions
// that they use (gnu::target): a program that is compiled for AVX2 has the tiles of AMX, too.
#pragma once

#include <cstddef>
#include <string_view>

#include <parx/core/abi.hpp>
#include <parx/tensor/gemm/bf16_values.hpp>
#include <parx/tensor/gemm/operand.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// `count` rows of `terms` terms of a, or the columns of b (transposed()).
struct bf16_operand {
  bf16_values values;
  std::size_t down, right;  ///< elements from row to row, and from term to term; one of them is 1

  [[nodiscard]] bf16_operand from(std::size_t row, std::size_t term) const noexcept {
    return {values + (row * down + term * right), down, right};
  }
};

/// c = alpha sums + base, for a tile's rows and columns.
struct bf16_addition {
  const float* sums;  ///< rows `sums_step` apart, aligned to 64 bytes
  std::size_t sums_step, rows, columns;
  float alpha;
  addend<float> base;  ///< its first element is that of the tile
  float* c;
  std::size_t ldc;
};

/// Operands of few rows, not packed.
struct bf16_direct_sums {
  const float* a;  ///< rounded, padded with zeros to a multiple of 32 terms
  std::size_t a_step, rows, columns, terms;
  bf16_operand b;
  float* sums;  ///< 0 before; aligned to 64 bytes, as is sums_step
  std::size_t sums_step;
};

struct bf16_path {
  /// Packs `count` rows (at most those of a tile) and `terms` terms, padded with zeros, to `to`.
  /// Denormals are flushed meanwhile.
  using pack_function = void (*)(bf16_operand from, std::size_t count, std::size_t terms,
                                 std::byte* to);

  std::string_view name;         ///< what PARX_BF16 calls it
  std::string_view text;         ///< for people
  std::size_t rows, columns;     ///< of a tile
  std::size_t a_bytes, b_bytes;  ///< of a packed panel and of a strip, for 32 terms
  pack_function pack_a, pack_b;
  /// Of a strip: those that stay in the first-level cache while panels go by. bf16_block: the path
  /// keeps the sums of a whole block in registers, and a panel stays while strips go by.
  std::size_t terms_at_once;
  std::size_t block_of_a;  ///< bytes of packed panels that stay in the second-level cache
  /// sums[i * columns + j] += s of bf16_order.hpp over `steps` times 32 terms; only rows x columns
  /// count. They are 0 before a block, and may be overwritten by all of it. Denormals are flushed
  /// meanwhile.
  void (*multiply)(std::size_t steps, const std::byte* a, const std::byte* b, std::size_t rows,
                   std::size_t columns, float* sums);
  void (*add)(const bf16_addition& x);
  void (*multiply_directly)(const bf16_direct_sums& x) = nullptr;
  void (*begin)() = nullptr;  ///< before and after the tiles of a task, on its thread
  void (*end)() = nullptr;
};

/// The largest tile of any path.
inline constexpr std::size_t bf16_most_sums = 32 * 32;

}  // namespace parx::detail::product
