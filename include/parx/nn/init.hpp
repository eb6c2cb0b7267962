// initializer: the distribution a parameter starts from, as a value.
//
// Element i of a parameter is number i of the random stream (seed, path of the parameter), so a
// model starts from the same values whatever the order in which its layers were made and whatever
// the number of ranks it is cut over. Pure.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <parx/tensor/random.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

struct initializer {
  enum class distribution { keep, constant, uniform, normal };
  distribution kind = distribution::keep;  ///< keep: what the constructor put there
  double a = 0;                            ///< the constant, the lower end, the mean
  double b = 0;                            ///< the upper end, the standard deviation

  /// Fills `values` (contiguous), the whole parameter called `path`.
  template <typename T>
  void fill(const tensor<T>& values, std::uint64_t seed, std::string_view path) const {
    if constexpr (is_half<T>) {
      if (kind == distribution::keep) return;
      const tensor<float> exact = tensor<float>::empty(values.shape());
      fill(exact, seed, path);
      convert(exact.data(), values.data(), values.size());
    } else {
      fill_exactly(values, seed, path);
    }
  }

 private:
  template <typename T>
  void fill_exactly(const tensor<T>& values, std::uint64_t seed, std::string_view path) const {
    const random_stream stream(seed, path);
    switch (kind) {
      case distribution::keep:
        break;
      case distribution::constant:
        values.fill(static_cast<T>(a));
        break;
      case distribution::uniform:
        stream.uniform(values, static_cast<T>(a), static_cast<T>(b));
        break;
      case distribution::normal:
        stream.normal(values, static_cast<T>(a), static_cast<T>(b));
        break;
    }
  }
};

namespace init {

[[nodiscard]] constexpr initializer constant(double value) {
  return {initializer::distribution::constant, value, 0};
}
[[nodiscard]] constexpr initializer uniform(double low, double high) {
  return {initializer::distribution::uniform, low, high};
}
[[nodiscard]] constexpr initializer normal(double mean, double deviation) {
  return {initializer::distribution::normal, mean, deviation};
}
/// Uniform in +-1 / sqrt(fan_in): PyTorch's default for the weights and biases of linear and
/// convolution layers, there written kaiming_uniform(a = sqrt(5)).
[[nodiscard]] inline initializer fan_in_uniform(std::size_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::size_t>(fan_in, 1)));
  return uniform(-bound, bound);
}

/// Uniform in +-sqrt(6 / (fan_in + fan_out)), as PyTorch starts the projections of attention.
/// Glorot, Bengio: Understanding the Difficulty of Training Deep Feedforward Neural Networks
/// (2010).
[[nodiscard]] inline initializer xavier_uniform(std::size_t fan_in, std::size_t fan_out) {
  const double bound =
      std::sqrt(6 / static_cast<double>(std::max<std::size_t>(fan_in + fan_out, 1)));
  return uniform(-bound, bound);
}

}  // namespace init

}  // namespace parx::nn
