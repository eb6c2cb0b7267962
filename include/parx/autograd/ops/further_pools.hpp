// Pooling along one axis, and adaptive_max_pool2d: windows that together cover the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/average_pool.hpp>
#include <parx/autograd/ops/pool.hpp>
#include <parx/autograd/ops/rows.hpp>
#include <parx/autograd/ops/view.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// The largest pixel of each window; its gradient goes to the first of them, a NaN being larger
/// than all.
template <typename T>
[[nodiscard]] variable<T> largest_of_windows(const variable<T>& x, pooled_axis down,
                                             pooled_axis right) {
  const tensor<T> input = x.value().contiguous();
  const std::size_t planes = x.extent(0) * x.extent(1), plane = down.extent * right.extent;
  const shape s{x.extent(0), x.extent(1), down.windows, right.windows};
  const std::size_t windows = down.windows * right.windows;
  tensor<T> y = tensor<T>::empty(s);
  const tensor<std::uint64_t> where = tensor<std::uint64_t>::empty(s);
  for_each_row(planes, plane, [&](std::size_t p) {
    std::size_t window = p * windows;
    each_pooled_window(down, right,
                       [&](std::size_t first, std::size_t rows, std::size_t columns, std::size_t) {
                         std::size_t best = p * plane + first;
                         for (std::size_t r = 0; r < rows; ++r) {
                           for (std::size_t c = 0; c < columns; ++c) {
                             const std::size_t at = p * plane + first + r * right.extent + c;
                             const T here = input.data()[at], most = input.data()[best];
                             if (here > most || (here != here && most == most)) best = at;
                           }
                         }
                         y.data()[window] = input.data()[best];
                         where.data()[window++] = best;
                       });
  });
  return differentiable(
      std::move(y),
      [=](const tensor<T>& upstream, grad_sink<T> dx) {
        T* const sum = dx.zeroed().data();
        for_each_row(planes, plane, [&](std::size_t p) {
          for (std::size_t i = p * windows; i < (p + 1) * windows; ++i) {
            sum[where.data()[i]] += upstream.data()[i];
          }
        });
      },
      x);
}

/// Windows along the last axis of x (n, channels, length), as `pool` makes them of planes.
template <typename T, typename Pool>
[[nodiscard]] variable<T> along_length(const char* call, const variable<T>& x, pooled_axis right,
                                       Pool pool) {
  require(x.rank() == 3, "{}: (n, channels, length) is needed, not shape {}", call,
          to_string(x.shape()));
  const bool adaptive = right.size == 0;
  require(adaptive
              ? right.windows > 0 && right.windows <= right.extent
              : 2 * right.padding <= right.size && right.extent + 2 * right.padding >= right.size,
          "{}: these windows do not fit an input of shape {}", call, to_string(x.shape()));
  if (!adaptive) right.windows = (right.extent + 2 * right.padding - right.size) / right.stride + 1;
  return squeeze(pool(unsqueeze(x, 2), {.extent = 1, .windows = 1}, right), 2);
}
template <typename T, typename Options>
[[nodiscard]] pooled_axis windows_along(const variable<T>& x, const Options& options) {
  require(options.size > 0, "a window has at least one element");
  return {.extent = x.shape().back(),
          .size = options.size,
          .stride = options.stride == 0 ? options.size : options.stride,
          .padding = options.padding};
}

}  // namespace detail

/// The largest element of each window along the last axis of x (n, channels, length): see
/// max_pool2d.
template <typename T>
[[nodiscard]] variable<T> max_pool1d(const variable<T>& x, const max_pool2d_options& options = {},
                                     call_site = call_site::current()) {
  return detail::along_length("max_pool1d", x, detail::windows_along(x, options),
                              detail::largest_of_windows<T>);
}
/// The mean of each window along the last axis of x (n, channels, length): see avg_pool2d.
template <typename T>
[[nodiscard]] variable<T> avg_pool1d(const variable<T>& x, const avg_pool2d_options& options = {},
                                     call_site = call_site::current()) {
  return detail::along_length("avg_pool1d", x, detail::windows_along(x, options),
                              detail::average_windows<T>);
}
/// The means of `windows` windows that together cover the length.
template <typename T>
[[nodiscard]] variable<T> adaptive_avg_pool1d(const variable<T>& x, std::size_t windows,
                                              call_site = call_site::current()) {
  return detail::along_length("adaptive_avg_pool1d", x,
                              {.extent = x.shape().back(), .windows = windows},
                              detail::average_windows<T>);
}
/// The largest elements of such windows.
template <typename T>
[[nodiscard]] variable<T> adaptive_max_pool1d(const variable<T>& x, std::size_t windows,
                                              call_site = call_site::current()) {
  return detail::along_length("adaptive_max_pool1d", x,
                              {.extent = x.shape().back(), .windows = windows},
                              detail::largest_of_windows<T>);
}
/// The largest pixels of rows x columns windows of x (n, channels, height, width): see
/// adaptive_avg_pool2d.
template <typename T>
[[nodiscard]] variable<T> adaptive_max_pool2d(const variable<T>& x, std::size_t rows = 1,
                                              std::size_t columns = 1,
                                              call_site = call_site::current()) {
  require(x.rank() == 4 && rows > 0 && columns > 0 && rows <= x.extent(2) && columns <= x.extent(3),
          "adaptive_max_pool2d: {}x{} windows of an input of shape {}; (images, channels, height, "
          "width) is needed, with no fewer pixels than windows",
          rows, columns, to_string(x.shape()));
  return detail::largest_of_windows(x, {.extent = x.extent(2), .windows = rows},
                                    {.extent = x.extent(3), .windows = columns});
}

}  // namespace parx
