// rms_norm: divides each row by the root of its mean square, then scales it.
//
// Zhang, Sennrich: Root Mean Square Layer Normalization (arXiv 1910.07467); as in Llama.
#pragma once

#include <cmath>
#include <cstddef>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

struct rms_norm_options {
  double epsilon = 1e-6;  ///< added to the mean square
};

/// y = x / sqrt(mean(x^2) + epsilon) * scale over the last axis; scale has its extent.
template <typename T>
[[nodiscard]] variable<T> rms_norm(const variable<T>& x, const variable<T>& scale,
                                   const rms_norm_options& options = {},
                                   call_site = call_site::current()) {
  require(x.rank() >= 1 && scale.shape() == shape{x.extent(-1)},
          "rms_norm: an input of shape {} needs a scale of its last extent, not {}",
          to_string(x.shape()), to_string(scale.shape()));
  const tensor<T> input = x.value().contiguous(), gain = scale.value().contiguous();
  const std::size_t width = x.shape().back();
  const std::size_t rows = width == 0 ? 0 : x.size() / width;
  const T share = T(1) / static_cast<T>(width);
  tensor<T> y = tensor<T>::empty(x.shape());
  const tensor<T> inverse = tensor<T>::empty({rows});
  const T* const g = gain.data();
  detail::for_each_row(rows, width, [&](std::size_t row) {
    const T* const in = input.data() + row * width;
    T* __restrict const out = y.data() + row * width;
    const T r =
        T(1) / std::sqrt(detail::row_dot(in, in, width) * share + static_cast<T>(options.epsilon));
    for (std::size_t i = 0; i < width; ++i) out[i] = in[i] * r * g[i];
    inverse.data()[row] = r;
  });
  return differentiable(
      std::move(y),
      single_call([=](const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dscale) {
        const auto target = dx.needed() ? dx.memory() : detail::gradient_memory<T>{};
        const T* const weight = gain.data();
        const auto of_rows = [&](std::size_t row, std::size_t last, T* sums) {
          T* __restrict const dg = dscale.needed() ? sums : nullptr;
          for (; row < last; ++row) {
            const T* const in = input.data() + row * width;
            const T* const u = upstream.data() + row * width;
            const T r = inverse.data()[row];
            for (std::size_t i = 0; dg != nullptr && i < width; ++i) dg[i] += u[i] * in[i] * r;
            if (!dx.needed()) continue;
            const T along = share * r * r *
                            reduce_lanes(0, width, T(0), add_op{},
                                         [=](std::size_t i) { return u[i] * weight[i] * in[i]; });
            detail::contribute(
                target.values.data() + row * width, width, target.add,
                [=](std::size_t i) { return r * (u[i] * weight[i] - in[i] * along); });
          }
        };
        const tensor<T> sums = detail::sum_over_rows<T>(rows, width, width, of_rows);
        if (dscale.needed()) dscale.add(sums);
      }),
      x, scale);
}

}  // namespace parx
