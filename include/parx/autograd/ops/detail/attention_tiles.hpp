// The arithmetic of scaled_dot_product_attention, tile by tile.
//
// Scores exist for one tile of queries and keys at a time, small enough for the cache. Forward
// keeps a running maximum and sum for each query (online softmax) and returns the logarithm of the
// sum; backward recomputes the probabilities from it. Dropout is a function of the stream and the
// position, so it is recomputed too. Dao, Fu, Ermon, Rudra, Re: FlashAttention (arXiv 2205.14135).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include <parx/autograd/ops/rows.hpp>
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>

namespace parx::inline PARX_ABI::detail {

/// Vectors of batches, heads and positions in memory; the elements of one are adjacent. The strides
/// count elements.
template <typename T>
struct heads_view {
  T* data = nullptr;
  std::size_t batch = 0;
  std::size_t head = 0;
  std::size_t row = 0;

  /// Of a tensor (batch, heads, positions, width), or, with `heads` above 0, (batch, positions,
  /// heads * width). The stride of a vector's elements must be 1: see dense_rows.
  [[nodiscard]] static heads_view of(const tensor<std::remove_const_t<T>>& t, std::size_t heads) {
    const auto& step = t.strides();
    if (heads == 0) return {t.data(), step[0], step[1], step[2]};
    return {t.data(), step[0], t.extent(-1) / heads, step[1]};
  }
  [[nodiscard]] T* at(std::size_t b, std::size_t h, std::size_t position) const noexcept {
    return data + b * batch + h * head + position * row;
  }
};

/// t itself unless its last axis is strided or its rows overlap (expanded); then a copy.
template <typename T>
[[nodiscard]] tensor<T> dense_rows(const tensor<T>& t) {
  const std::size_t last = t.rank() - 1;
  const bool dense = t.shape()[last] == 1 || t.strides()[last] == 1;
  const bool apart = t.shape()[last - 1] == 1 || t.strides()[last - 1] >= t.shape()[last];
  return dense && apart ? t : t.clone();
}

/// Queries are (batches, heads, queries, width), keys (batches, heads / group, keys, width), values
/// (batches, heads / group, keys, value_width).
template <typename T>
struct attention_problem {
  std::size_t batches = 0, heads = 0, group = 1, queries = 0, keys = 0;
  std::size_t width = 0, value_width = 0;
  T scale = T(1);
  bool causal = false;
  std::size_t query_offset = 0;
  tensor<T> key_bias = {};  // (batches, keys): 0 or -infinity; not defined: all 0
  tensor<T> bias = {};      // expanded to (batches, heads, queries, keys); not defined: all 0
  std::vector<std::size_t, pool_allocator<std::size_t>> key_end = {};  // per batch: after the last
  double dropout = 0;
  random_stream stream{0, ""};
  std::size_t first_head = 0, whole_heads = 0;  // see attention_options
  dtype products = dtype::float32;              // bfloat16: computed by gemm(products, ...)

  static constexpr std::size_t columns = 256;
  /// Queries of a tile. Fewer with a causal mask, because half of the scores on the diagonal are
  /// wasted, and in short texts the diagonal tiles are a large part of all.
  [[nodiscard]] std::size_t rows() const noexcept { return !causal ? 128 : keys <= 256 ? 32 : 64; }

  /// Heads whose products take some 20 us or more.
  [[nodiscard]] std::size_t heads_of_a_task() const noexcept {
    constexpr std::size_t multiply_adds = std::size_t{1} << 20U;
    return multiply_adds / std::max<std::size_t>(queries * keys * (width + value_width), 1) + 1;
  }

  /// The number of keys that query t may see.
  [[nodiscard]] std::size_t visible(std::size_t b, std::size_t t) const noexcept {
    return causal ? std::min(key_end[b], t + query_offset + 1) : key_end[b];
  }

  /// scores (n, m) of queries t0... and keys s0..., without masks.
  void score(heads_view<const T> q, heads_view<const T> k, std::size_t b, std::size_t h,
             std::size_t t0, std::size_t n, std::size_t s0, std::size_t m, T* scores) const {
    gemm(products, op::plain, op::transposed, n, m, width, scale, q.at(b, h, t0), q.row,
         k.at(b, h / group, s0), k.row, T(0), scores, m);
  }
  /// Adds both biases to the scores of query t and keys s0 ... s0 + count - 1.
  void add_biases(std::size_t b, std::size_t h, std::size_t t, std::size_t s0, std::size_t count,
                  T* x) const {
    if (key_bias.defined()) {
      const T* const y = key_bias.data() + b * keys + s0;
      for (std::size_t j = 0; j < count; ++j) x[j] += y[j];
    }
    if (bias.defined()) {
      const auto& step = bias.strides();
      const T* const y = bias.data() + b * step[0] + h * step[1] + t * step[2] + s0 * step[3];
      for (std::size_t j = 0; j < count; ++j) x[j] += y[j * step[3]];
    }
  }
  /// y[j] = x[j] / (1 - dropout) where key s0 + j is kept for query t, else 0. s0 is a multiple of
  /// 128. Each word decides two keys.
  void drop(std::size_t b, std::size_t h, std::size_t t, std::size_t s0, std::size_t count,
            const T* x, T* y) const {
    const auto threshold = static_cast<std::uint32_t>(dropout * 0x1p16 + 0.5);
    const T keep = static_cast<T>(0x1p16 / (0x1p16 - static_cast<double>(threshold)));
    const std::uint64_t row = (std::uint64_t{b} * whole_heads + first_head + h) * queries + t;
    const std::uint64_t words_of_row = (std::uint64_t{keys} + 127) / 128 * 64;
    const std::uint64_t first = row * words_of_row + s0 / 2;
    stream.words(first, (std::uint64_t{count} + 127) / 128 * 64,
                 [&](const std::uint32_t* word, std::uint64_t at, std::size_t) {
                   const std::size_t begin = 2 * static_cast<std::size_t>(at - first);
                   const std::size_t low = std::min<std::size_t>(64, count - begin);
                   const std::size_t high = std::min<std::size_t>(64, count - begin - low);
                   for (std::size_t j = 0; j < low; ++j) {
                     y[begin + j] = (word[j] & 0xFFFFU) >= threshold ? x[begin + j] * keep : T(0);
                   }
                   for (std::size_t j = 0; j < high; ++j) {
                     y[begin + 64 + j] =
                         (word[j] >> 16U) >= threshold ? x[begin + 64 + j] * keep : T(0);
                   }
                 });
  }
};

/// log_sum is (batches, heads, queries): the logarithm of the sum of the exponentials of a query's
/// scores. For a query that sees no key it is +infinity, and the output is 0.
template <typename T>
void attention_forward(const attention_problem<T>& p, heads_view<const T> q, heads_view<const T> k,
                       heads_view<const T> v, heads_view<T> out, T* log_sum) {
  constexpr T infinity = std::numeric_limits<T>::infinity();
  constexpr std::size_t columns = attention_problem<T>::columns;
  const auto of_heads = [&](std::size_t bh, std::size_t last) {
    const tensor<T> scores = tensor<T>::empty({p.rows(), std::min(columns, p.keys)});
    std::array<T, 128> total;
    for (; bh < last; ++bh) {
      const std::size_t b = bh / p.heads, h = bh % p.heads;
      for (std::size_t t0 = 0; t0 < p.queries; t0 += p.rows()) {
        const std::size_t n = std::min(p.rows(), p.queries - t0);
        T* const highest = log_sum + bh * p.queries + t0;
        std::fill_n(highest, n, -infinity);
        std::fill_n(total.data(), n, T(0));
        const std::size_t end = p.visible(b, t0 + n - 1);
        for (std::size_t s0 = 0; s0 < end; s0 += columns) {
          const std::size_t m = std::min(columns, end - s0);
          p.score(q, k, b, h, t0, n, s0, m, scores.data());
          for (std::size_t r = 0; r < n; ++r) {
            T* const x = scores.data() + r * m;
            const std::size_t seen = p.visible(b, t0 + r);
            const std::size_t count = seen <= s0 ? 0 : std::min(m, seen - s0);
            std::fill_n(x + count, m - count, T(0));
            if (count == 0) continue;
            p.add_biases(b, h, t0 + r, s0, count, x);
            const T top = std::max(highest[r], row_max(x, count));
            const T base = top == -infinity ? T(0) : top;
            const T sum = row_exp(x, base, count, x);
            if (s0 > 0) {
              const T shrink = std::exp(highest[r] - base);
              total[r] *= shrink;
              T* const o = out.at(b, h, t0 + r);
              for (std::size_t d = 0; d < p.value_width; ++d) o[d] *= shrink;
            }
            total[r] += sum;
            highest[r] = top;
            if (p.dropout > 0) p.drop(b, h, t0 + r, s0, count, x, x);
          }
          gemm(p.products, op::plain, op::plain, n, p.value_width, m, T(1), scores.data(), m,
               v.at(b, h / p.group, s0), v.row, s0 == 0 ? T(0) : T(1), out.at(b, h, t0), out.row);
        }
        for (std::size_t r = 0; r < n; ++r) {
          T* const o = out.at(b, h, t0 + r);
          if (total[r] == T(0)) {
            std::fill_n(o, p.value_width, T(0));
            highest[r] = infinity;
            continue;
          }
          const T share = T(1) / total[r];
          for (std::size_t d = 0; d < p.value_width; ++d) o[d] *= share;
          highest[r] += std::log(total[r]);
        }
      }
    }
  };
  parallel_for(p.batches * p.heads, p.heads_of_a_task(), of_heads);
}

/// Adds to dk and dv; dq is overwritten when beta_q is 0, else added to.
template <typename T>
void attention_backward(const attention_problem<T>& p, heads_view<const T> q, heads_view<const T> k,
                        heads_view<const T> v, heads_view<const T> out, heads_view<const T> dout,
                        const T* log_sum, heads_view<T> dq, T beta_q, heads_view<T> dk,
                        heads_view<T> dv) {
  constexpr std::size_t columns = attention_problem<T>::columns;
  const shape tile{p.rows(), std::min(columns, p.keys)};
  // A task has whole groups: their heads add to the same gradients of keys and values.
  const auto of_heads = [&](std::size_t first_group, std::size_t last_group) {
    const tensor<T> probabilities = tensor<T>::empty(tile);
    const tensor<T> derivative = tensor<T>::empty(tile);
    const tensor<T> kept = p.dropout > 0 ? tensor<T>::empty(tile) : probabilities;
    std::array<T, 128> common;  // sum over the keys of p dp, which is the sum over d of out dout
    for (std::size_t bh = first_group * p.group; bh < last_group * p.group; ++bh) {
      const std::size_t b = bh / p.heads, h = bh % p.heads, g = h / p.group;
      for (std::size_t t0 = 0; t0 < p.queries; t0 += p.rows()) {
        const std::size_t n = std::min(p.rows(), p.queries - t0);
        const T* const shift = log_sum + bh * p.queries + t0;
        for (std::size_t r = 0; r < n; ++r) {
          common[r] = row_dot(out.at(b, h, t0 + r), dout.at(b, h, t0 + r), p.value_width);
        }
        const std::size_t end = p.visible(b, t0 + n - 1);
        if (end == 0 && beta_q == T(0)) {
          for (std::size_t r = 0; r < n; ++r) std::fill_n(dq.at(b, h, t0 + r), p.width, T(0));
        }
        for (std::size_t s0 = 0; s0 < end; s0 += columns) {
          const std::size_t m = std::min(columns, end - s0);
          p.score(q, k, b, h, t0, n, s0, m, probabilities.data());
          for (std::size_t r = 0; r < n; ++r) {
            T* const x = probabilities.data() + r * m;
            const std::size_t seen = p.visible(b, t0 + r);
            const std::size_t count = seen <= s0 ? 0 : std::min(m, seen - s0);
            p.add_biases(b, h, t0 + r, s0, count, x);
            row_exp_shifted(x, shift[r], count, x);
            std::fill_n(x + count, m - count, T(0));
            if (p.dropout > 0) p.drop(b, h, t0 + r, s0, m, x, kept.data() + r * m);
          }
          gemm(p.products, op::transposed, op::plain, m, p.value_width, n, T(1), kept.data(), m,
               dout.at(b, h, t0), dout.row, T(1), dv.at(b, g, s0), dv.row);
          gemm(p.products, op::plain, op::transposed, n, m, p.value_width, T(1), dout.at(b, h, t0),
               dout.row, v.at(b, g, s0), v.row, T(0), derivative.data(), m);
          for (std::size_t r = 0; r < n; ++r) {
            T* const d = derivative.data() + r * m;
            const T* const x = probabilities.data() + r * m;
            const T* const y = kept.data() + r * m;
            const T c = common[r];
            for (std::size_t j = 0; j < m; ++j) d[j] = y[j] * d[j] - x[j] * c;
          }
          gemm(p.products, op::plain, op::plain, n, p.width, m, p.scale, derivative.data(), m,
               k.at(b, g, s0), k.row, s0 == 0 ? beta_q : T(1), dq.at(b, h, t0), dq.row);
          gemm(p.products, op::transposed, op::plain, m, p.width, n, p.scale, derivative.data(), m,
               q.at(b, h, t0), q.row, T(1), dk.at(b, g, s0), dk.row);
        }
      }
    }
  };
  const std::size_t grain = (p.heads_of_a_task() + p.group - 1) / p.group;
  parallel_for(p.batches * p.heads / p.group, grain, of_heads);
}

}  // namespace parx::detail
