// max_pool2d: the largest pixel of each window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>

namespace parx {

struct max_pool2d_options {
  std::size_t size = 2;     ///< of the square window
  std::size_t stride = 0;   ///< 0: the size
  std::size_t padding = 0;  ///< around the image, never the largest; at most half the size
};

namespace detail {

/// For one plane: the largest pixel of each window and where it is. Goes through the windows'
/// pixels in the outer loops and through a row of windows in the inner one, which has no branch.
template <typename T>
void pool_plane(const window2d& w, const T* plane, T* best, std::uint32_t* where) {
  const std::size_t out_height = w.out_height(), out_width = w.out_width();
  for (std::size_t oy = 0; oy < out_height; ++oy, best += out_width, where += out_width) {
    const std::size_t top = oy * w.stride > w.padding ? oy * w.stride - w.padding : 0;
    for (std::size_t ox = 0; ox < out_width; ++ox) {
      const std::size_t left = ox * w.stride > w.padding ? ox * w.stride - w.padding : 0;
      where[ox] = static_cast<std::uint32_t>(top * w.width + left);
      best[ox] = std::numeric_limits<T>::lowest();
    }
    for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
      if (oy * w.stride + ky < w.padding || oy * w.stride + ky - w.padding >= w.height) continue;
      const std::size_t row = (oy * w.stride + ky - w.padding) * w.width;
      for (std::size_t kx = 0; kx < w.kernel_width; ++kx) {
        const auto columns = w.inside(kx, w.width, out_width);
        for (std::size_t ox = columns.begin; ox < columns.end; ++ox) {
          const std::size_t pixel = row + ox * w.stride + kx - w.padding;
          const bool larger = !(plane[pixel] <= best[ox]);  // NaN is passed on
          best[ox] = larger ? plane[pixel] : best[ox];
          where[ox] = larger ? static_cast<std::uint32_t>(pixel) : where[ox];
        }
      }
    }
  }
}

}  // namespace detail

/// x (images, channels, height, width); the result has (height + 2 padding - size) / stride + 1
/// rows. The gradient goes to the first largest pixel. Throws usage_error when the window does not
/// fit.
template <typename T>
[[nodiscard]] variable<T> max_pool2d(const variable<T>& x, const max_pool2d_options& options = {}) {
  require(x.rank() == 4, "max_pool2d: (images, channels, height, width) is needed, not shape {}",
          to_string(x.shape()));
  require(2 * options.padding <= options.size,
          "max_pool2d: a padding of {} is more than half the size {}", options.padding,
          options.size);
  const detail::window2d window{.channels = 1,
                                .height = x.extent(2),
                                .width = x.extent(3),
                                .kernel_height = options.size,
                                .kernel_width = options.size,
                                .stride = options.stride == 0 ? options.size : options.stride,
                                .padding = options.padding};
  window.check("max_pool2d");
  require(window.image_size() <= std::numeric_limits<std::uint32_t>::max(),
          "max_pool2d: a plane of {} pixels is too large", window.image_size());
  const tensor<T> input = x.value().contiguous();
  const shape s{x.extent(0), x.extent(1), window.out_height(), window.out_width()};
  const std::size_t planes = s[0] * s[1], pixels = window.out_pixels(),
                    plane_size = window.image_size();
  tensor<T> y = tensor<T>::empty(s);
  const tensor<std::uint32_t> where = tensor<std::uint32_t>::empty(s);
  for (std::size_t plane = 0; plane < planes; ++plane) {
    detail::pool_plane(window, input.data() + plane * plane_size, y.data() + plane * pixels,
                       where.data() + plane * pixels);
  }
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const sum = dx.zeroed().data();
        for (std::size_t plane = 0; plane < planes; ++plane) {
          const T* const u = upstream.data() + plane * pixels;
          const std::uint32_t* const at = where.data() + plane * pixels;
          for (std::size_t i = 0; i < pixels; ++i) sum[plane * plane_size + at[i]] += u[i];
        }
      },
      x);
}

}  // namespace parx
