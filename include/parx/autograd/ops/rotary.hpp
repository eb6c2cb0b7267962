// rotary: rotates pairs of elements of each head by an angle that grows with the position.
//
// Pair i of a vector at position t rotates by t * base^(-2 i / width), so that the product of a
// query and a key depends on their distance. Backward rotates the other way.
// Su et al.: RoFormer: Enhanced Transformer with Rotary Position Embedding (arXiv 2104.09864).
#pragma once

#include <cmath>
#include <cstddef>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

enum class rotary_layout {
  interleaved,  ///< elements 2 i and 2 i + 1 are a pair: the paper, llama2.c
  halves,       ///< elements i and i + width / 2 are a pair: Hugging Face's Llama
};

/// The cosines and sines of all positions; a handle, made once for a model.
template <typename T = float>
class rotary_table {
 public:
  /// For heads of `width` elements, which is even, at positions below `positions`.
  rotary_table(std::size_t positions, std::size_t width, double base = 10000)
      : width_(width),
        cosine_(tensor<T>::empty({positions, width / 2})),
        sine_(tensor<T>::empty({positions, width / 2})) {
    require(width > 0 && width % 2 == 0, "rotary_table: a width of {} does not make pairs", width);
    for (std::size_t t = 0; t < positions; ++t) {
      for (std::size_t i = 0; i < width / 2; ++i) {
        const double angle =
            static_cast<double>(t) *
            std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(width));
        cosine_.at(t, i) = static_cast<T>(std::cos(angle));
        sine_.at(t, i) = static_cast<T>(std::sin(angle));
      }
    }
  }

  [[nodiscard]] std::size_t positions() const noexcept { return cosine_.shape()[0]; }
  [[nodiscard]] std::size_t width() const noexcept { return width_; }
  [[nodiscard]] const T* cosines(std::size_t position) const noexcept {
    return cosine_.data() + position * (width_ / 2);
  }
  [[nodiscard]] const T* sines(std::size_t position) const noexcept {
    return sine_.data() + position * (width_ / 2);
  }

 private:
  std::size_t width_;
  tensor<T> cosine_, sine_;
};

struct rotary_options {
  rotary_layout layout = rotary_layout::halves;
  std::size_t first_position = 0;  ///< of the first vector (a cache has the earlier ones)
};

namespace detail {

/// to = from with every pair rotated; the other way where `sense` is -1. `beta` is 0 or 1: to is
/// overwritten or added to. from and to are contiguous (..., positions, heads * width).
template <typename T>
void rotate(const tensor<T>& from, const rotary_table<T>& table, const rotary_options& options,
            T sense, T beta, const tensor<T>& to) {
  const std::size_t row = from.shape().back(), width = table.width(), pairs = width / 2;
  const std::size_t positions = from.extent(-2), rows = row == 0 ? 0 : from.size() / row;
  const bool halves = options.layout == rotary_layout::halves;
  const std::size_t step = halves ? 1 : 2, other = halves ? pairs : 1;
  for_each_row(rows, row, [&](std::size_t r) {
    const std::size_t position = options.first_position + r % positions;
    const T* const c = table.cosines(position);
    const T* const s = table.sines(position);
    for (std::size_t head = 0; head < row; head += width) {
      const T* const x = from.data() + r * row + head;
      T* const y = to.data() + r * row + head;
      const auto turn = [=](std::size_t i, std::size_t a, std::size_t b) {
        const T first = x[a] * c[i] - sense * x[b] * s[i];
        const T second = sense * x[a] * s[i] + x[b] * c[i];
        y[a] = beta == T(0) ? first : y[a] + first;
        y[b] = beta == T(0) ? second : y[b] + second;
      };
      for (std::size_t i = 0; i < pairs; ++i) turn(i, step * i, step * i + other);
    }
  });
}

}  // namespace detail

/// x is (..., positions, heads * width) with heads of table.width() elements side by side.
/// Throws usage_error when x does not fit or the table ends before its last position.
template <typename T>
[[nodiscard]] variable<T> rotary(const variable<T>& x, const rotary_table<T>& table,
                                 const rotary_options& options = {},
                                 call_site = call_site::current()) {
  require(x.rank() >= 2 && x.extent(-1) % table.width() == 0,
          "rotary: an input of shape {} is not made of heads of {} elements", to_string(x.shape()),
          table.width());
  require(options.first_position + x.extent(-2) <= table.positions(),
          "rotary: positions up to {} are needed, the table ends at {}",
          options.first_position + x.extent(-2), table.positions());
  tensor<T> y = tensor<T>::empty(x.shape());
  detail::rotate(x.value().contiguous(), table, options, T(1), T(0), y);
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        const auto target = dx.memory();
        detail::rotate(upstream, table, options, T(-1), target.beta(), target.values);
      },
      x);
}

}  // namespace parx
