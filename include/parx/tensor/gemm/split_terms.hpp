// split_terms: a product of many terms and few elements, such as a weight's gradient, whose blocks
// of terms are the threads' tasks.
//
// Divided by rows and columns, such a product has few tasks, and all threads read all of b. Here a
// thread reads the terms of its blocks alone. The sums of the blocks are added in the stated order
// (summation_order.hpp), so no bit changes.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/parallel_for.hpp>
#include <parx/tensor/gemm/blocking.hpp>
#include <parx/tensor/gemm/operand.hpp>
#include <parx/tensor/gemm/summation_order.hpp>
#include <parx/tensor/gemm/task_count.hpp>
#include <parx/tensor/gemm/workspace.hpp>
#include <parx/tensor/packet.hpp>

namespace parx::inline PARX_ABI::detail::product {

/// Whether there are enough blocks for all threads, and few enough elements that their sums stay in
/// the caches.
template <typename T>
[[nodiscard]] bool should_split_terms(const multiplication<T>& x) {
  constexpr std::size_t most_elements = std::size_t{1} << 16U;
  const std::size_t tasks = wanted_tasks(x.m * x.n * x.k, work::by_arithmetic);
  return tasks > 1 && x.m * x.n <= most_elements &&
         x.k >= 2 * block_k * static_cast<std::size_t>(get_num_threads());
}

/// Rows `i` to `last` of c from the blocks' sums, which follow each other.
template <typename T>
void add_blocks(const multiplication<T>& x, const T* sums, std::size_t blocks, std::size_t i,
                std::size_t last) {
  const packet<T> alpha = all_of<packet<T>>(x.alpha);
  for (; i < last; ++i) {
    T* const c = x.c + i * x.ldc;
    for (std::size_t j = 0; j < x.n; ++j) c[j] = x.base.at(i, j);
    for_each_packet<T>(x.n, [&](std::size_t j, auto... left) PARX_PACKET_BODY {
      packet<T> value = load_packet(c + j, left...);
      const T* from = sums + i * x.n + j;
      for (std::size_t b = 0; b < blocks; ++b, from += x.m * x.n) {
        value = simd::fma(alpha, load_packet(from, left...), value);
      }
      store_packet(c + j, value, left...);
    });
  }
}

template <typename S, typename T>
void multiply_split(const multiplication<T>& x) {
  const std::size_t blocks = (x.k + block_k - 1) / block_k, size = x.m * x.n;
  const workspace<T> memory(blocks * size + x.n);
  T* const sums = memory.data();
  // Adding -0 changes no sum; 0 would make +0 of a sum that is -0.
  T* const nothing = sums + blocks * size;
  std::fill_n(nothing, x.n, T(-0.0));
  parallel_for(blocks, 1, [&](std::size_t b, std::size_t last) {
    for (; b < last; ++b) {
      const std::size_t k0 = b * block_k;
      const multiplication<T> block{.m = x.m, .n = x.n, .k = std::min(block_k, x.k - k0),
                                    .alpha = 1, .a = x.a.from(0, k0), .b = x.b.from(k0, 0),
                                    .base = {nothing, 0, 1}, .c = sums + b * size, .ldc = x.n};
      blocked_product<S>(block, blocking::choose<S>(block)).run();
    }
  });
  const std::size_t elements = std::size_t{1} << 15U;  // of about 20 us, all blocks' together
  parallel_for(x.m, elements / (blocks * x.n), [&](std::size_t i, std::size_t last) {
    add_blocks(x, sums, blocks, i, last);
    x.finish({x.c + i * x.ldc, x.ldc, i, 0, last - i, x.n});
  });
}

}  // namespace parx::detail::product
