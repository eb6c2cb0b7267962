// upsample (interpolate), pixel_shuffle and group_norm: images of other sizes, channels in groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/arithmetic.hpp>
#include <parx/autograd/ops/detail/axis_strides.hpp>
#include <parx/autograd/ops/index.hpp>
#include <parx/autograd/ops/layer_norm.hpp>
#include <parx/autograd/ops/view.hpp>

namespace parx::inline PARX_ABI {

/// How pixels between those of the input are made.
enum class upsample_mode {
  nearest,
  linear,          ///< PyTorch's linear, bilinear and trilinear, with align_corners=False
  linear_corners,  ///< the same with align_corners=True: the first and last pixels stay
};

namespace detail {

/// Index k of an axis of the result is (1 - weight) x[below] + weight x[above].
struct blend {
  std::vector<std::size_t> below, above;
  std::vector<double> weight;

  blend(std::size_t from, std::size_t to, upsample_mode mode) {
    for (std::size_t k = 0; k < to; ++k) {
      const auto at = static_cast<double>(k), in = static_cast<double>(from),
                 out = static_cast<double>(to);
      const double place = mode == upsample_mode::linear_corners
                               ? (to == 1 ? 0 : at * (in - 1) / (out - 1))
                               : std::max((at + 0.5) * (in / out) - 0.5, 0.0);
      const auto first = std::min(static_cast<std::size_t>(place), from - 1);
      below.push_back(first);
      above.push_back(std::min(first + 1, from - 1));
      weight.push_back(place - static_cast<double>(first));
    }
  }
};

template <typename T>
[[nodiscard]] variable<T> blended(const variable<T>& x, int axis, std::size_t to,
                                  upsample_mode mode) {
  const axis_strides from(x.shape(), axis);
  const blend how(from.extent, to, mode);
  shape s = x.shape();
  s[resolve_axis(axis, s)] = to;
  const axis_strides result(s, axis);
  const tensor<T> input = x.value().contiguous();
  tensor<T> y = tensor<T>::empty(s);
  result.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
    for (std::size_t k = 0; k < to; ++k) {
      const T* const a = input.data() + outer * from.slab() + how.below[k] * from.inner;
      const T* const b = input.data() + outer * from.slab() + how.above[k] * from.inner;
      T* const line = y.data() + outer * result.slab() + k * result.inner;
      const T w = static_cast<T>(how.weight[k]), v = T(1) - w;
      for (std::size_t i = begin; i < end; ++i) line[i] = simd::fma(w, b[i], v * a[i]);
    }
  });
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const sums = dx.zeroed().data();
        result.for_each_slab([&](std::size_t outer, std::size_t begin, std::size_t end) {
          for (std::size_t k = 0; k < to; ++k) {
            T* const a = sums + outer * from.slab() + how.below[k] * from.inner;
            T* const b = sums + outer * from.slab() + how.above[k] * from.inner;
            const T* const u = upstream.data() + outer * result.slab() + k * result.inner;
            const T w = static_cast<T>(how.weight[k]), v = T(1) - w;
            for (std::size_t i = begin; i < end; ++i) a[i] = simd::fma(v, u[i], a[i]);
            for (std::size_t i = begin; i < end; ++i) b[i] = simd::fma(w, u[i], b[i]);
          }
        });
      },
      x);
}

template <typename T>
[[nodiscard]] variable<T> resized(const variable<T>& x, std::span<const std::size_t> sizes,
                                  upsample_mode mode) {
  require(x.rank() == sizes.size() + 2 && x.size() > 0,
          "upsample: {} sizes for an input of shape {}; (n, channels, ...) is needed", sizes.size(),
          to_string(x.shape()));
  variable<T> y = x;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const int axis = static_cast<int>(i) + 2;
    const std::size_t from = x.extent(axis), to = sizes[i];
    if (mode != upsample_mode::nearest) {
      y = blended(y, axis, to, mode);
    } else {
      element_places nearest(to);
      for (std::size_t k = 0; k < to; ++k) nearest[k] = k * from / to;
      y = taken("upsample", y, axis, std::move(nearest));
    }
  }
  return y;
}

}  // namespace detail

/// x (n, channels, ...) with the axes behind the channels of these sizes: torch's interpolate.
/// Throws usage_error for another number of sizes, and for an axis without elements.
template <typename T>
[[nodiscard]] variable<T> upsample(const variable<T>& x, std::initializer_list<std::size_t> sizes,
                                   upsample_mode mode = upsample_mode::nearest,
                                   call_site = call_site::current()) {
  return detail::resized(x, {sizes.begin(), sizes.size()}, mode);
}
/// All these axes `factor` times as long.
template <typename T>
[[nodiscard]] variable<T> upsample(const variable<T>& x, std::size_t factor,
                                   upsample_mode mode = upsample_mode::nearest,
                                   call_site = call_site::current()) {
  std::vector<std::size_t> sizes;
  for (std::size_t axis = 2; axis < x.rank(); ++axis) sizes.push_back(x.shape()[axis] * factor);
  return detail::resized<T>(x, sizes, mode);
}

/// (n, channels factor^2, height, width) becomes (n, channels, height factor, width factor).
template <typename T>
[[nodiscard]] variable<T> pixel_shuffle(const variable<T>& x, std::size_t factor,
                                        call_site = call_site::current()) {
  require(x.rank() == 4 && factor > 0 && x.extent(1) % (factor * factor) == 0,
          "pixel_shuffle: an input of shape {} by {}: (n, channels {}^2, height, width) is needed",
          to_string(x.shape()), factor, factor);
  const std::size_t n = x.extent(0), c = x.extent(1) / (factor * factor), h = x.extent(2),
                    w = x.extent(3);
  const variable<T> parts = reshape(x, {n, c, factor, factor, h, w});
  return reshape(permute(parts, {0, 1, 4, 2, 5, 3}), {n, c, h * factor, w * factor});
}

/// Each of `groups` groups of the channels (axis 1) of x (n, channels, ...) normalised to mean 0
/// and variance 1, then scaled and shifted by the weight and bias (channels), which may be not
/// defined(). Wu, He: Group Normalization (arXiv 1803.08494). With as many groups as channels it is
/// PyTorch's instance_norm.
template <typename T>
[[nodiscard]] variable<T> group_norm(const variable<T>& x, std::size_t groups,
                                     const variable<T>& weight = {}, const variable<T>& bias = {},
                                     const layer_norm_options& options = {},
                                     call_site = call_site::current()) {
  require(x.rank() >= 2 && groups > 0 && x.extent(1) % groups == 0,
          "group_norm: an input of shape {} has no {} equal groups of channels (axis 1)",
          to_string(x.shape()), groups);
  shape channels{x.extent(1)};
  for (const variable<T>* each : {&weight, &bias}) {
    require(!each->defined() || each->shape() == channels,
            "group_norm: a weight or bias of shape {} for an input of shape {}",
            each->defined() ? to_string(each->shape()) : "", to_string(x.shape()));
  }
  for (std::size_t axis = 2; axis < x.rank(); ++axis) channels.push_back(1);
  const std::size_t rows = x.extent(0) * groups, width = rows == 0 ? 0 : x.size() / rows;
  const variable<T> normal =
      reshape(layer_norm<T>(reshape(x, {rows, width}), tensor<T>::ones({width}),
                            tensor<T>::zeros({width}), options),
              x.shape());
  const variable<T> scaled = weight.defined() ? normal * reshape(weight, channels) : normal;
  return bias.defined() ? scaled + reshape(bias, channels) : scaled;
}

}  // namespace parx
