// sinusoidal_position: a token's position as sines and cosines of falling frequencies.
//
// Learned positions are an embedding whose rows are positions; rotary ones are parx::rotary.
// Vaswani et al.: Attention Is All You Need (arXiv 1706.03762), section 3.5.
#pragma once

#include <cmath>
#include <cstddef>

#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

/// (positions, width): sin(t / 10000^(2 i / width)) at 2 i, the cosine of that angle at 2 i + 1.
template <typename T = float>
[[nodiscard]] tensor<T> sinusoids(std::size_t positions, std::size_t width) {
  const tensor<T> table = tensor<T>::empty({positions, width});
  for (std::size_t t = 0; t < positions; ++t) {
    for (std::size_t j = 0; j < width; ++j) {
      const double angle =
          static_cast<double>(t) *
          std::pow(10000.0, -static_cast<double>(j - j % 2) / static_cast<double>(width));
      table.at(t, j) = static_cast<T>(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  return table;
}

/// Adds the sinusoids of positions first, first + 1, ... to x (..., positions, width). It has no
/// parameters.
template <typename T = float>
class sinusoidal_position : public module<sinusoidal_position<T>> {
 public:
  using value_type = T;

  sinusoidal_position(std::size_t positions, std::size_t width)
      : positions_(positions), width_(width) {}

  /// Throws usage_error when x has positions after the table's.
  [[nodiscard]] variable<T> forward(const variable<T>& x, std::size_t first = 0) {
    if (!table_.defined()) table_ = sinusoids<T>(positions_, width_);
    return x + variable<T>(table_.slice(0, first, first + x.extent(-2)));
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // the table is no part of a checkpoint

 private:
  std::size_t positions_, width_;
  tensor<T> table_;  // filled by the first call
};

}  // namespace parx::nn
