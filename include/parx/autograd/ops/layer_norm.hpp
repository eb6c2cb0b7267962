// layer_norm: normalises each row to mean 0 and variance 1, then scales and shifts it.
//
// Ba, Kiros, Hinton: Layer Normalization (arXiv 1607.06450).
#pragma once

#include <cmath>
#include <cstddef>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

struct layer_norm_options {
  double epsilon = 1e-5;  ///< added to the variance
};

/// y = (x - mean) / sqrt(variance + epsilon) * scale + shift over the last axis; scale and shift
/// have its extent. The variance is that of the population (divided by the number), as in PyTorch.
template <typename T>
[[nodiscard]] variable<T> layer_norm(const variable<T>& x, const variable<T>& scale,
                                     const variable<T>& shift,
                                     const layer_norm_options& options = {},
                                     call_site = call_site::current()) {
  require(
      x.rank() >= 1 && scale.shape() == shape{x.extent(-1)} && shift.shape() == scale.shape(),
      "layer_norm: an input of shape {} needs scale and shift of its last extent, not {} and {}",
      to_string(x.shape()), to_string(scale.shape()), to_string(shift.shape()));
  const tensor<T> input = x.value().contiguous();
  const tensor<T> gain = scale.value().contiguous(), bias = shift.value().contiguous();
  const std::size_t width = x.shape().back();
  const std::size_t rows = width == 0 ? 0 : x.size() / width;
  const T share = T(1) / static_cast<T>(width);
  tensor<T> y = tensor<T>::empty(x.shape());
  const tensor<T> mean = tensor<T>::empty({rows}), inverse = tensor<T>::empty({rows});
  const T* const g = gain.data();
  const T* const b = bias.data();
  detail::for_each_row(rows, width, [&](std::size_t row) {
    const T* const in = input.data() + row * width;
    // Without __restrict, compilers check four pointers for overlap before every row.
    T* __restrict const out = y.data() + row * width;
    const T m = detail::row_sum(in, width) * share;
    for (std::size_t i = 0; i < width; ++i) out[i] = in[i] - m;
    const T variance = detail::row_dot<T>(out, out, width) * share;
    const T r = T(1) / std::sqrt(variance + static_cast<T>(options.epsilon));
    for (std::size_t i = 0; i < width; ++i) out[i] = out[i] * r * g[i] + b[i];
    mean.data()[row] = m;
    inverse.data()[row] = r;
  });
  return differentiable(
      std::move(y),
      single_call([=](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dscale,
                      grad_sink<T> dshift) {
        const auto target = dx.needed() ? dx.memory() : detail::gradient_memory<T>{};
        const T* const weight = gain.data();
        const auto of_rows = [&](std::size_t row, std::size_t last, T* sums) {
          T* __restrict const db = dshift.needed() ? sums : nullptr;
          T* __restrict const dg = dscale.needed() ? sums + width : nullptr;
          const tensor<T> scratch = tensor<T>::empty({2, width});
          T* __restrict const normal = scratch.data();  // (x - mean) / deviation
          T* __restrict const gained = normal + width;  // its gradient
          for (; row < last; ++row) {
            const T* const in = input.data() + row * width;
            const T* const u = upstream.data() + row * width;
            const T m = mean.data()[row], r = inverse.data()[row];
            for (std::size_t i = 0; i < width; ++i) normal[i] = (in[i] - m) * r;
            for (std::size_t i = 0; db != nullptr && i < width; ++i) db[i] += u[i];
            for (std::size_t i = 0; dg != nullptr && i < width; ++i) dg[i] += u[i] * normal[i];
            if (!dx.needed()) continue;
            for (std::size_t i = 0; i < width; ++i) gained[i] = u[i] * weight[i];
            const T first = share * detail::row_sum<T>(gained, width);
            const T second = share * detail::row_dot<T>(gained, normal, width);
            detail::contribute(
                target.values.data() + row * width, width, target.add,
                [=](std::size_t i) { return r * (gained[i] - first - normal[i] * second); });
          }
        };
        const tensor<T> sums = detail::sum_over_rows<T>(rows, width, 2 * width, of_rows);
        if (dshift.needed()) dshift.add(sums.slice(0, 0, width));
        if (dscale.needed()) dscale.add(sums.slice(0, width, 2 * width));
      }),
      x, scale, shift);
}

}  // namespace parx
