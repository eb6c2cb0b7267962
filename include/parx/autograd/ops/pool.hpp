// max_pool2d: the largest pixel of each window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>

namespace parx {

struct max_pool2d_options {
  std::size_t size = 2;     ///< of the square window
  std::size_t stride = 0;   ///< 0: the size
  std::size_t padding = 0;  ///< around the image, never the largest; at most half the size
};

namespace detail {

/// For one plane: the largest pixel of each window and where it is, without a branch on the pixels.
/// When nothing is padded and size and stride are constants, a row of windows vectorises.
template <typename T, typename Size, typename Stride>
void pool_plane(const window2d& w, Size size, Stride stride, const T* plane, T* best,
                std::uint32_t* where) {
  const std::size_t rows = w.out_height(), columns = w.out_width(), width = w.width;
  for (std::size_t oy = 0; oy < rows; ++oy, best += columns, where += columns) {
    const std::size_t top = oy * stride * width;
    for (std::size_t ox = 0; ox < columns; ++ox) {
      const T* const window = plane + top + ox * stride;
      T largest = *window;
      std::uint32_t at = 0;  // from the window's first pixel: as wide as a float
      for (std::size_t ky = 0; ky < size; ++ky) {
        for (std::size_t kx = 0; kx < size; ++kx) {
          const T value = window[ky * width + kx];
          const bool larger = !(value <= largest);  // NaN is passed on
          largest = larger ? value : largest;
          at = larger ? static_cast<std::uint32_t>(ky * width + kx) : at;
        }
      }
      best[ox] = largest;
      where[ox] = static_cast<std::uint32_t>(top + ox * stride) + at;
    }
  }
}

/// The same with windows that reach into the padding.
template <typename T>
void pool_padded_plane(const window2d& w, const T* plane, T* best, std::uint32_t* where) {
  const auto clip = [&](std::size_t start, std::size_t size, std::size_t extent) {
    const std::size_t begin = start > w.padding ? start - w.padding : 0;
    return window2d::range{begin, std::min(extent, start + size - w.padding)};
  };
  for (std::size_t oy = 0; oy < w.out_height(); ++oy) {
    const auto rows = clip(oy * w.stride, w.kernel_height, w.height);
    for (std::size_t ox = 0; ox < w.out_width(); ++ox) {
      const auto columns = clip(ox * w.stride, w.kernel_width, w.width);
      std::size_t at = rows.begin * w.width + columns.begin;
      for (std::size_t y = rows.begin; y < rows.end; ++y) {
        for (std::size_t x = columns.begin; x < columns.end; ++x) {
          at = !(plane[y * w.width + x] <= plane[at]) ? y * w.width + x : at;
        }
      }
      *best++ = plane[at];
      *where++ = static_cast<std::uint32_t>(at);
    }
  }
}

template <typename T>
void pool_planes(const window2d& w, std::size_t planes, const T* x, T* best, std::uint32_t* where) {
  using two = std::integral_constant<std::size_t, 2>;
  for (std::size_t i = 0; i < planes; ++i) {
    const T* const plane = x + i * w.image_size();
    if (w.padding > 0) {
      pool_padded_plane(w, plane, best, where);
    } else if (w.kernel_width == 2 && w.stride == 2) {
      pool_plane(w, two{}, two{}, plane, best, where);
    } else {
      pool_plane(w, w.kernel_width, w.stride, plane, best, where);
    }
    best += w.out_pixels();
    where += w.out_pixels();
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
  detail::pool_planes(window, planes, input.data(), y.data(), where.data());
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
