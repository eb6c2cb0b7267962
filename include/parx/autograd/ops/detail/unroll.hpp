// window2d and im2col: the windows of an image as the columns of a matrix, and back.
//
// Row (channel, ky, kx) of the matrix holds, for every window, the pixel at (ky, kx) of that
// window; the columns are the windows of the first image row by row, then those of the next image.
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/core/check.hpp>

namespace parx::inline PARX_ABI::detail {

struct window2d {
  std::size_t channels = 0, height = 0, width = 0;
  std::size_t kernel_height = 0, kernel_width = 0;
  std::size_t stride = 1, padding = 0, dilation = 1;

  /// Throws usage_error unless at least one window fits.
  void check(const char* operation) const {
    require(stride > 0 && dilation > 0 && kernel_height > 0 && kernel_width > 0 &&
                height + 2 * padding > reach_down() && width + 2 * padding > reach_right(),
            "{}: a window of {}x{} with stride {} and dilation {} does not fit an image of {}x{} "
            "with padding {}",
            operation, kernel_height, kernel_width, stride, dilation, height, width, padding);
  }
  /// From the first row, or column, of a window to its last.
  [[nodiscard]] std::size_t reach_down() const { return (kernel_height - 1) * dilation; }
  [[nodiscard]] std::size_t reach_right() const { return (kernel_width - 1) * dilation; }
  [[nodiscard]] std::size_t out_height() const {
    return (height + 2 * padding - reach_down() - 1) / stride + 1;
  }
  [[nodiscard]] std::size_t out_width() const {
    return (width + 2 * padding - reach_right() - 1) / stride + 1;
  }
  [[nodiscard]] std::size_t out_pixels() const { return out_height() * out_width(); }
  [[nodiscard]] std::size_t image_size() const { return channels * height * width; }
  [[nodiscard]] std::size_t unrolled_rows() const {
    return channels * kernel_height * kernel_width;
  }
  /// A 1x1 kernel: the image is its own unrolling.
  [[nodiscard]] bool is_identity() const {
    return kernel_height == 1 && kernel_width == 1 && stride == 1 && padding == 0;
  }
  /// Enough images for products about 512 columns wide.
  [[nodiscard]] std::size_t images_at_once(std::size_t images) const {
    if (is_identity() || out_pixels() >= 256) return 1;
    return std::max<std::size_t>(1, std::min(images, 512 / out_pixels()));
  }

  /// The windows [begin, end) of an axis whose pixel `offset` is inside the image.
  struct range {
    std::size_t begin, end;
  };
  [[nodiscard]] range inside(std::size_t offset, std::size_t extent, std::size_t windows) const {
    const std::size_t begin = offset >= padding ? 0 : (padding - offset + stride - 1) / stride;
    const std::size_t limit = extent + padding;  // window * stride + offset < limit
    const std::size_t end =
        limit > offset ? std::min(windows, (limit - offset + stride - 1) / stride) : 0;
    return {std::min(begin, end), end};
  }
};

/// Calls piece(image pixel, matrix element, count) for each run of windows in one row whose pixel
/// (ky, kx) is inside the image, and gap(matrix element, count) for the runs where it is in the
/// padding.
template <typename Piece, typename Gap>
void each_unrolled_run(const window2d& w, std::size_t images, Piece&& piece, Gap&& gap) {
  const std::size_t out_height = w.out_height(), out_width = w.out_width();
  std::size_t element = 0;
  for (std::size_t c = 0; c < w.channels; ++c) {
    for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
      const std::size_t down = ky * w.dilation;
      const auto rows = w.inside(down, w.height, out_height);
      for (std::size_t kx = 0; kx < w.kernel_width; ++kx) {
        const std::size_t right = kx * w.dilation;
        const auto columns = w.inside(right, w.width, out_width);
        for (std::size_t image = 0; image < images; ++image) {
          const std::size_t plane = image * w.image_size() + c * w.height * w.width;
          for (std::size_t oy = 0; oy < out_height; ++oy, element += out_width) {
            if (oy < rows.begin || oy >= rows.end || columns.begin == columns.end) {
              gap(element, out_width);
              continue;
            }
            const std::size_t row = plane + (oy * w.stride + down - w.padding) * w.width;
            if (columns.begin > 0) gap(element, columns.begin);
            piece(row + columns.begin * w.stride + right - w.padding, element + columns.begin,
                  columns.end - columns.begin);
            if (columns.end < out_width) gap(element + columns.end, out_width - columns.end);
          }
        }
      }
    }
  }
}

template <typename T>
void unroll(const window2d& w, const T* images, std::size_t count, T* matrix) {
  const auto gap = [=](std::size_t element, std::size_t length) {
    std::fill_n(matrix + element, length, T(0));
  };
  if (w.stride == 1) {
    each_unrolled_run(
        w, count,
        [=](std::size_t pixel, std::size_t element, std::size_t length) {
          std::copy_n(images + pixel, length, matrix + element);
        },
        gap);
  } else {
    each_unrolled_run(
        w, count,
        [=, step = w.stride](std::size_t pixel, std::size_t element, std::size_t length) {
          for (std::size_t i = 0; i < length; ++i) matrix[element + i] = images[pixel + i * step];
        },
        gap);
  }
}

/// The transpose of unroll: adds every matrix element to its pixel.
template <typename T>
void roll_back(const window2d& w, const T* matrix, std::size_t count, T* images) {
  const auto gap = [](std::size_t /*element*/, std::size_t /*length*/) {};
  if (w.stride == 1) {
    each_unrolled_run(
        w, count,
        [=](std::size_t pixel, std::size_t element, std::size_t length) {
          for (std::size_t i = 0; i < length; ++i) images[pixel + i] += matrix[element + i];
        },
        gap);
  } else {
    each_unrolled_run(
        w, count,
        [=, step = w.stride](std::size_t pixel, std::size_t element, std::size_t length) {
          for (std::size_t i = 0; i < length; ++i) images[pixel + i * step] += matrix[element + i];
        },
        gap);
  }
}

/// (outer, inner, pixels) to (inner, outer, pixels).
template <typename T>
void swap_images_and_channels(const T* from, std::size_t outer, std::size_t inner,
                              std::size_t pixels, T* to) {
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < inner; ++i) {
      std::copy_n(from + (o * inner + i) * pixels, pixels, to + (i * outer + o) * pixels);
    }
  }
}

}  // namespace parx::detail
