// initializer: the distribution a parameter starts from, as a value.
//
// Element i of a parameter is number i of the random stream (seed, path of the parameter), so a
// model's initial values depend neither on the order in which its layers were constructed nor on
// the number of ranks it is cut over. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <parx/tensor/random.hpp>
#include <parx/tensor/shard_spec.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

struct initializer {
  enum class distribution { keep, constant, uniform, normal };
  distribution kind = distribution::keep;  ///< keep: existing values stay
  double a = 0;                            ///< the constant, the lower end, the mean
  double b = 0;                            ///< the upper end, the standard deviation

  /// Fills `values` (contiguous), this rank's `part` of the parameter called `path`, with the
  /// elements that the whole parameter has there.
  template <typename T>
  void fill(const tensor<T>& values, std::uint64_t seed, std::string_view path,
            const shard_spec& part) const {
    if (kind == distribution::keep) return;
    const random_stream stream(seed, path);
    const std::span<T> here = values.span();
    part.for_each_run([&](const shard_run& run) {
      fill_run(stream, here.subspan(run.local, run.length), run.global);
    });
  }

 private:
  /// `out` begins with element `first` of the whole.
  template <typename T>
  void fill_run(const random_stream& stream, std::span<T> out, std::uint64_t first) const {
    if constexpr (is_half<T>) {
      std::array<float, 1024> exact;
      for (std::size_t at = 0; at < out.size(); at += exact.size()) {
        const std::size_t count = std::min(exact.size(), out.size() - at);
        fill_run(stream, std::span(exact).first(count), first + at);
        convert(exact.data(), out.data() + at, count);
      }
      return;
    } else {
      switch (kind) {
        case distribution::keep:
          break;
        case distribution::constant:
          std::fill(out.begin(), out.end(), static_cast<T>(a));
          break;
        case distribution::uniform:
          stream.uniform(out, static_cast<T>(a), static_cast<T>(b), first);
          break;
        case distribution::normal:
          stream.normal(out, static_cast<T>(a), static_cast<T>(b), first);
          break;
      }
    }
  }
};

namespace init {

/// All values are `value`.
[[nodiscard]] constexpr initializer constant(double value) {
  return {initializer::distribution::constant, value, 0};
}
/// Uniform in [low, high).
[[nodiscard]] constexpr initializer uniform(double low, double high) {
  return {initializer::distribution::uniform, low, high};
}
/// Normal, with this mean and standard deviation.
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
