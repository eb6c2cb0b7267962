// avg_pool2d and adaptive_avg_pool2d: the mean of each window.
//
// A window is a range of rows times a range of columns; its mean is the sum of its pixels divided
// by its size. Backward spreads the gradient evenly over the window.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/rows.hpp>

namespace parx::inline PARX_ABI {

struct avg_pool2d_options {
  std::size_t size = 2;     ///< of the square window
  std::size_t stride = 0;   ///< 0: the size
  std::size_t padding = 0;  ///< zeros around the image, which count; at most half the size
};

namespace detail {

/// The windows along one axis: window i covers the pixels [begin(i), end(i)) of `extent`.
struct pooled_axis {
  std::size_t extent = 0, windows = 0;
  std::size_t size = 0, stride = 0, padding = 0;  // size 0: windows that divide the axis evenly

  [[nodiscard]] std::size_t begin(std::size_t i) const {
    if (size == 0) return i * extent / windows;
    return i * stride > padding ? i * stride - padding : 0;
  }
  [[nodiscard]] std::size_t end(std::size_t i) const {
    if (size == 0) return ((i + 1) * extent + windows - 1) / windows;
    return std::min(extent, i * stride + size - padding);
  }
  [[nodiscard]] std::size_t divisor(std::size_t i) const {
    return size == 0 ? end(i) - begin(i)
                     : std::min(i * stride + size, extent + 2 * padding) - i * stride;
  }
};

/// Calls visit(first pixel, rows, columns, divisor) for each window of a plane, row by row.
template <typename Visit>
void each_pooled_window(const pooled_axis& down, const pooled_axis& right, Visit&& visit) {
  for (std::size_t i = 0; i < down.windows; ++i) {
    for (std::size_t j = 0; j < right.windows; ++j) {
      visit(down.begin(i) * right.extent + right.begin(j), down.end(i) - down.begin(i),
            right.end(j) - right.begin(j), down.divisor(i) * right.divisor(j));
    }
  }
}

template <typename T>
[[nodiscard]] variable<T> average_windows(const variable<T>& x, pooled_axis down,
                                          pooled_axis right) {
  const tensor<T> input = x.value().contiguous();
  const std::size_t planes = x.extent(0) * x.extent(1), plane = down.extent * right.extent;
  tensor<T> y = tensor<T>::empty({x.extent(0), x.extent(1), down.windows, right.windows});
  const std::size_t windows = down.windows * right.windows;
  for_each_row(planes, plane, [&](std::size_t p) {
    const T* const from = input.data() + p * plane;
    T* result = y.data() + p * windows;
    each_pooled_window(down, right, [&](std::size_t first, std::size_t rows, std::size_t columns,
                                        std::size_t divisor) {
      T sum = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) sum += from[first + r * right.extent + c];
      }
      *result++ = sum / static_cast<T>(divisor);
    });
  });
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const target = dx.zeroed().data();
        for_each_row(planes, plane, [&](std::size_t p) {
          const T* u = upstream.data() + p * windows;
          T* const to = target + p * plane;
          each_pooled_window(down, right, [&](std::size_t first, std::size_t rows,
                                              std::size_t columns, std::size_t divisor) {
            const T share = *u++ / static_cast<T>(divisor);
            for (std::size_t r = 0; r < rows; ++r) {
              for (std::size_t c = 0; c < columns; ++c) to[first + r * right.extent + c] += share;
            }
          });
        });
      },
      x);
}

}  // namespace detail

/// x (images, channels, height, width); the result has (height + 2 padding - size) / stride + 1
/// rows. Throws usage_error when the window does not fit.
template <typename T>
[[nodiscard]] variable<T> avg_pool2d(const variable<T>& x, const avg_pool2d_options& options = {},
                                     call_site = call_site::current()) {
  require(x.rank() == 4, "avg_pool2d: (images, channels, height, width) is needed, not shape {}",
          to_string(x.shape()));
  const std::size_t size = options.size, stride = options.stride == 0 ? size : options.stride;
  require(size > 0 && 2 * options.padding <= size &&
              std::min(x.extent(2), x.extent(3)) + 2 * options.padding >= size,
          "avg_pool2d: a window of size {} with padding {} does not fit an input of shape {}", size,
          options.padding, to_string(x.shape()));
  const auto axis = [&](std::size_t extent) {
    return detail::pooled_axis{extent, (extent + 2 * options.padding - size) / stride + 1, size,
                               stride, options.padding};
  };
  return detail::average_windows(x, axis(x.extent(2)), axis(x.extent(3)));
}

/// The means of rows x columns windows that together cover the image, whatever its size; 1 x 1 is
/// the mean of each channel. Throws usage_error where there are more windows than pixels.
template <typename T>
[[nodiscard]] variable<T> adaptive_avg_pool2d(const variable<T>& x, std::size_t rows = 1,
                                              std::size_t columns = 1,
                                              call_site = call_site::current()) {
  require(x.rank() == 4 && rows > 0 && columns > 0 && rows <= x.extent(2) && columns <= x.extent(3),
          "adaptive_avg_pool2d: {}x{} windows of an input of shape {}; (images, channels, height, "
          "width) is needed, with no fewer pixels than windows",
          rows, columns, to_string(x.shape()));
  return detail::average_windows(x, {.extent = x.extent(2), .windows = rows},
                                 {.extent = x.extent(3), .windows = columns});
}

}  // namespace parx
