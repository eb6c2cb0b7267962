// batch_norm: normalises each channel to mean 0 and variance 1 over all images and pixels of the
// batch, then scales and shifts it by learned values.
//
// x is (n, channels, ...). Sums over the batch are computed in double and passed to `combine`,
// which may add those of other ranks: then all ranks normalise together as one big batch.
// Backward: dx = weight / sigma (dy - mean(dy) - xhat mean(dy xhat)).
// Ioffe, Szegedy: Batch Normalization (arXiv 1502.03167).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

/// Of each channel, in double like the sums; `count` is the number of values of each.
struct batch_statistics {
  tensor<double> mean;
  tensor<double> variance;  ///< divided by count
  double count = 0;
};

/// `combine` for batch_norm without other ranks.
struct local_sums {
  void operator()(std::span<double> /*sums*/) const noexcept {}
};

namespace detail {

/// Calls run(channel, offset, length) for each run of x's values that belong to one channel: those
/// of a channel in the order of the images, those of others perhaps by other threads.
template <typename Run>
void each_channel_run(const shape& s, Run&& run) {
  const std::size_t images = s[0], channels = s[1];
  const std::size_t pixels = images * channels == 0 ? 0 : s.size() / (images * channels);
  parallel_for(channels, rows_of_a_block(images * pixels), [&](std::size_t first,
                                                                std::size_t last) {
    for (std::size_t n = 0; n < images; ++n) {
      for (std::size_t c = first; c < last; ++c) run(c, (n * channels + c) * pixels, pixels);
    }
  });
}

inline void check_batch_norm(const shape& x, const shape& weight, const shape& bias) {
  require(x.rank() >= 2 && weight == shape{x[1]} && bias == weight,
          "batch_norm: an input of shape {} does not fit weight {} and bias {}: (n, channels, ...) "
          "and (channels) are needed",
          to_string(x), to_string(weight), to_string(bias));
}

enum class statistics_of { this_batch, earlier_batches };

template <typename T, typename Combine>
[[nodiscard]] variable<T> normalise(const variable<T>& x, const variable<T>& weight,
                                    const variable<T>& bias, const batch_statistics& statistics,
                                    statistics_of source, double epsilon, Combine combine) {
  const std::size_t channels = x.extent(1);
  const tensor<T> input = x.value().contiguous(), scale = tensor<T>::empty({channels});
  const tensor<T> mean = statistics.mean.cast<T>(), inverse = tensor<T>::empty({channels});
  const tensor<T> gain = weight.value().contiguous(), shift = bias.value().contiguous();
  for (std::size_t c = 0; c < channels; ++c) {
    inverse.data()[c] = static_cast<T>(1 / std::sqrt(statistics.variance.data()[c] + epsilon));
    scale.data()[c] = gain.data()[c] * inverse.data()[c];
  }
  tensor<T> y = tensor<T>::empty(x.shape());
  each_channel_run(x.shape(), [&](std::size_t c, std::size_t begin, std::size_t length) {
    const T m = mean.data()[c], a = scale.data()[c], b = shift.data()[c];
    const T* const from = input.data() + begin;
    T* const to = y.data() + begin;
    for (std::size_t i = 0; i < length; ++i) to[i] = (from[i] - m) * a + b;
  });
  const double count = statistics.count;
  return differentiable(
      std::move(y),
      // single_call: combine() is a collective, which must run once.
      single_call([=](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dweight,
                      grad_sink<T> dbias) {
        // sums of dy, then of dy xhat
        const tensor<double> sums = tensor<double>::zeros({2 * channels});
        double* const dy = sums.data();
        double* const dy_xhat = dy + channels;
        each_channel_run(input.shape(), [&](std::size_t c, std::size_t begin, std::size_t length) {
          const T* const u = upstream.data() + begin;
          const T* const v = input.data() + begin;
          const T m = mean.data()[c];
          double first = 0, second = 0;
          for (std::size_t i = 0; i < length; ++i) {
            first += static_cast<double>(u[i]);
            second += static_cast<double>(u[i] * (v[i] - m));
          }
          dy[c] += first;
          dy_xhat[c] += second * static_cast<double>(inverse.data()[c]);
        });
        // The parameters' gradients are this rank's; wrappers such as ddp add those of all ranks.
        if (dweight.needed()) dweight.add(sums.slice(0, channels, 2 * channels).cast<T>());
        if (dbias.needed()) dbias.add(sums.slice(0, 0, channels).cast<T>());
        if (source == statistics_of::this_batch) {
          combine(sums.span());  // also where dx is not needed: other ranks wait for these sums
        }
        if (!dx.needed()) return;
        const auto target = dx.memory();
        const bool through_mean = source == statistics_of::this_batch && count > 0;
        each_channel_run(input.shape(), [&](std::size_t c, std::size_t begin, std::size_t length) {
          const T m = mean.data()[c], a = scale.data()[c];
          const T level = through_mean ? static_cast<T>(dy[c] / count) : T(0);
          const T slope =
              through_mean
                  ? static_cast<T>(dy_xhat[c] / count) * inverse.data()[c]
                  : T(0);
          const T* const u = upstream.data() + begin;
          const T* const v = input.data() + begin;
          contribute(target.values.data() + begin, length, target.add,
                     [=](std::size_t i) { return a * (u[i] - level - (v[i] - m) * slope); });
        });
      }),
      x, weight, bias);
}

}  // namespace detail

/// Mean and variance of each channel of x, over all ranks whose sums `combine` adds: it gets one
/// span of the sums, the sums of squares and the count.
template <typename T, typename Combine = local_sums>
[[nodiscard]] batch_statistics statistics_of_batch(const tensor<T>& x, Combine combine = {}) {
  require(x.rank() >= 2, "batch_norm: (n, channels, ...) is needed, not shape {}",
          to_string(x.shape()));
  const std::size_t channels = x.shape()[1];
  const tensor<T> input = x.contiguous();
  const tensor<double> sums = tensor<double>::zeros({2 * channels + 1});
  double* const sum = sums.data();
  detail::each_channel_run(x.shape(), [&](std::size_t c, std::size_t begin, std::size_t length) {
    double first = 0, second = 0;
    for (std::size_t i = begin; i < begin + length; ++i) {
      const double value = static_cast<double>(input.data()[i]);
      first += value;
      second += value * value;
    }
    sum[c] += first;
    sum[channels + c] += second;
  });
  sum[2 * channels] = channels == 0 ? 0 : static_cast<double>(x.size() / channels);
  combine(sums.span());
  batch_statistics result{tensor<double>::zeros({channels}), tensor<double>::zeros({channels}),
                          sum[2 * channels]};
  for (std::size_t c = 0; c < channels && result.count > 0; ++c) {
    const double mean = sum[c] / result.count;
    result.mean.data()[c] = mean;
    result.variance.data()[c] =
        std::max(0.0, sum[channels + c] / result.count - mean * mean);
  }
  return result;
}

/// In training: x normalised by the statistics of its own batch, which are
/// statistics_of_batch(x.value(), combine); the gradient flows through them too.
template <typename T, typename Combine = local_sums>
[[nodiscard]] variable<T> batch_norm(const variable<T>& x, const variable<T>& weight,
                                     const variable<T>& bias, const batch_statistics& statistics,
                                     double epsilon = 1e-5, Combine combine = {},
                                     call_site = call_site::current()) {
  detail::check_batch_norm(x.shape(), weight.shape(), bias.shape());
  return detail::normalise(x, weight, bias, statistics, detail::statistics_of::this_batch, epsilon,
                           combine);
}

/// In evaluation: normalised by earlier statistics, which are constants.
template <typename T>
[[nodiscard]] variable<T> batch_norm_with(const variable<T>& x, const variable<T>& weight,
                                          const variable<T>& bias,
                                          const batch_statistics& statistics, double epsilon = 1e-5,
                                          call_site = call_site::current()) {
  detail::check_batch_norm(x.shape(), weight.shape(), bias.shape());
  return detail::normalise(x, weight, bias, statistics, detail::statistics_of::earlier_batches,
                           epsilon, local_sums{});
}

}  // namespace parx
