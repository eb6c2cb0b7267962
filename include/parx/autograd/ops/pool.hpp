// max_pool2d: the largest pixel of each window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

struct max_pool2d_options {
  std::size_t size = 2;     ///< of the square window
  std::size_t stride = 0;   ///< 0: the size
  std::size_t padding = 0;  ///< around the image, never the largest; at most half the size
};

namespace detail {

/// For one plane: the largest pixel of each window and its index, without branches on pixels.
template <typename T>
void pool_plane(const window2d& w, const T* plane, T* best, std::uint32_t* where) {
  const std::size_t columns = w.out_width();
  for (std::size_t oy = 0; oy < w.out_height(); ++oy, best += columns, where += columns) {
    const std::size_t top = oy * w.stride * w.width;
    for (std::size_t ox = 0; ox < columns; ++ox) {
      std::size_t at = top + ox * w.stride;
      T largest = plane[at];
      for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
        const std::size_t row = top + ky * w.width + ox * w.stride;
        for (std::size_t i = row; i < row + w.kernel_width; ++i) {
          const bool larger = !(plane[i] <= largest);  // NaN is passed on
          largest = larger ? plane[i] : largest;
          at = larger ? i : at;
        }
      }
      best[ox] = largest;
      where[ox] = static_cast<std::uint32_t>(at);
    }
  }
}

/// The same for windows that reach into the padding.
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
  const auto pool = w.padding > 0 ? pool_padded_plane<T> : pool_plane<T>;
  for_each_row(planes, w.image_size(), [&](std::size_t i) {
    pool(w, x + i * w.image_size(), best + i * w.out_pixels(), where + i * w.out_pixels());
  });
}

// Adjacent windows of 2x2, the usual case: no pixel is in two of them, so that backward writes each
// pixel once, and a byte says which of the four was the largest. Both loops vectorise.

[[nodiscard]] inline bool is_quartering(const window2d& w) {
  return w.kernel_height == 2 && w.kernel_width == 2 && w.stride == 2 && w.padding == 0;
}

template <typename T>
void quarter_planes(const window2d& w, std::size_t planes, const T* x, T* best,
                    std::uint8_t* where) {
  const std::size_t rows = w.out_height(), columns = w.out_width(), width = w.width;
  for (std::size_t plane = 0; plane < planes; ++plane, x += w.image_size()) {
    for (std::size_t oy = 0; oy < rows; ++oy, best += columns, where += columns) {
      const T* const top = x + 2 * oy * width;
      const T* const bottom = top + width;
      T* __restrict const to = best;
      std::uint8_t* __restrict const index = where;
      for (std::size_t ox = 0; ox < columns; ++ox) {
        const T pixel[] = {top[2 * ox], top[2 * ox + 1], bottom[2 * ox], bottom[2 * ox + 1]};
        T largest = pixel[0];
        std::uint32_t at = 0;
        for (std::uint32_t i = 1; i < 4; ++i) {
          const bool larger = !(pixel[i] <= largest);  // NaN is passed on
          largest = larger ? pixel[i] : largest;
          at = larger ? i : at;
        }
        to[ox] = largest;
        index[ox] = static_cast<std::uint8_t>(at);
      }
    }
  }
}

/// line[2 i], line[2 i + 1] = upstream[i] where `where` is first, first + 1, else 0.
template <typename T>
void spread_line(std::size_t count, const T* upstream, const std::uint8_t* where,
                 std::uint32_t first, T* __restrict line) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t at = where[i];
    line[2 * i] = at == first ? upstream[i] : T(0);
    line[2 * i + 1] = at == first + 1 ? upstream[i] : T(0);
  }
}

/// dx = upstream where a pixel was the largest of its window, 0 elsewhere; or adds that to dx.
template <typename T>
void spread_quarters(const window2d& w, std::size_t planes, const T* upstream,
                     const std::uint8_t* where, T* dx, bool adds) {
  const std::size_t columns = w.out_width(), pixels = w.out_pixels(), covered = 2 * columns;
  // All upper rows of a plane in one loop, and all lower ones: single rows are short.
  const tensor<T> lines = tensor<T>::empty({2, 2 * pixels});
  for (std::size_t plane = 0; plane < planes; ++plane, upstream += pixels, where += pixels) {
    spread_line(pixels, upstream, where, 0, lines.data());
    spread_line(pixels, upstream, where, 2, lines.data() + 2 * pixels);
    for (std::size_t y = 0; y < w.height; ++y, dx += w.width) {
      // The last row of an odd height is in no window, nor is the last column of an odd width.
      const std::size_t inside = y < 2 * w.out_height() ? covered : 0;
      const T* const line = lines.data() + y % 2 * 2 * pixels + y / 2 * covered;
      if (adds) {
        for (std::size_t i = 0; i < inside; ++i) dx[i] += line[i];
      } else {
        std::copy_n(line, inside, dx);
        std::fill(dx + inside, dx + w.width, T(0));
      }
    }
  }
}

}  // namespace detail

/// x (images, channels, height, width); the result has (height + 2 padding - size) / stride + 1
/// rows. The gradient goes to the first largest pixel. Throws usage_error when the window does not
/// fit.
template <typename T>
[[nodiscard]] variable<T> max_pool2d(const variable<T>& x, const max_pool2d_options& options = {},
                                     call_site = call_site::current()) {
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
  if (detail::is_quartering(window)) {
    const tensor<std::uint8_t> where = tensor<std::uint8_t>::empty(s);
    parallel_for(planes, rows_of_a_block(plane_size), [&](std::size_t first, std::size_t last) {
      detail::quarter_planes(window, last - first, input.data() + first * plane_size,
                             y.data() + first * pixels, where.data() + first * pixels);
    });
    return differentiable(
        std::move(y),
        [=](const tensor<T>& upstream, grad_sink<T> dx) {
          const auto target = dx.memory();
          parallel_for(planes, rows_of_a_block(plane_size),
                       [&](std::size_t first, std::size_t last) {
                         detail::spread_quarters(
                             window, last - first, upstream.data() + first * pixels,
                             where.data() + first * pixels,
                             target.values.data() + first * plane_size, target.add);
                       });
        },
        x);
  }
  const tensor<std::uint32_t> where = tensor<std::uint32_t>::empty(s);
  detail::pool_planes(window, planes, input.data(), y.data(), where.data());
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const sum = dx.zeroed().data();
        detail::for_each_row(planes, plane_size, [&](std::size_t plane) {
          const T* const u = upstream.data() + plane * pixels;
          const std::uint32_t* const at = where.data() + plane * pixels;
          for (std::size_t i = 0; i < pixels; ++i) sum[plane * plane_size + at[i]] += u[i];
        });
      },
      x);
}

}  // namespace parx
