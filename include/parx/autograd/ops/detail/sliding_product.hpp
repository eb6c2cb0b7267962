// Convolution with stride 1 as a product of matrices, without unrolling the image.
//
// In an image with zeros around it, row (channel, ky, kx) of the unrolled matrix is the image
// itself from (channel, ky, kx) on: one vector load per row and register of windows, most of them
// from the first-level cache. The windows that begin in the padding at the right of a row are
// computed and dropped. Images are processed in strips of rows that stay in the second-level cache.
// The gradient of the image is the same product with the kernel rotated by 180 degrees; that of the
// weight has the output's channels in its registers. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include <parx/autograd/ops/detail/unroll.hpp>
#include <parx/tensor/gemm/tile.hpp>
#include <parx/tensor/packet.hpp>
#include <parx/tensor/tensor.hpp>
#include <parx/types/simd.hpp>

namespace parx::inline PARX_ABI::detail {

// Sums kept in registers: 4 x 6 of AVX-512's 32, 4 x 3 of AVX2's 16.
inline constexpr std::size_t outputs_at_once = 4;
inline constexpr std::size_t vectors_at_once = simd::register_bytes == 64 ? 6 : 3;
inline constexpr std::size_t taps_at_once = 6;

template <typename T>
inline constexpr std::size_t lanes_of = simd::register_bytes / sizeof(T);

[[nodiscard]] constexpr std::size_t divide_up(std::size_t a, std::size_t b) noexcept {
  return (a + b - 1) / b;
}

/// Windows that slide over an image with zeros around it by one pixel at a time.
struct sliding_window {
  std::size_t channels, height, width;  ///< of the image
  std::size_t kernel_height, kernel_width, dilation;
  std::size_t top, left;  ///< zeros before the first row and column
  std::size_t out_height, out_width;

  /// For w.stride == 1.
  [[nodiscard]] static sliding_window forward(const window2d& w) {
    return {w.channels, w.height,  w.width,   w.kernel_height, w.kernel_width,
            w.dilation, w.padding, w.padding, w.out_height(),  w.out_width()};
  }
  /// From the gradient of the result, of `outputs` channels, to that of the image.
  [[nodiscard]] static sliding_window backward(const window2d& w, std::size_t outputs) {
    return {outputs,
            w.out_height(),
            w.out_width(),
            w.kernel_height,
            w.kernel_width,
            w.dilation,
            w.reach_down() - w.padding,
            w.reach_right() - w.padding,
            w.height,
            w.width};
  }

  [[nodiscard]] std::size_t reach() const { return (kernel_height - 1) * dilation; }
  /// Elements from one row with its zeros to the next.
  [[nodiscard]] std::size_t pitch() const { return out_width + (kernel_width - 1) * dilation; }
  [[nodiscard]] std::size_t taps() const { return channels * kernel_height * kernel_width; }
  [[nodiscard]] std::size_t plane(std::size_t rows) const { return (rows + reach()) * pitch(); }

  /// Rows of windows whose image takes about 256 KiB, a quarter of a usual second-level cache.
  template <typename T>
  [[nodiscard]] std::size_t strip_rows() const {
    const std::size_t fit = (256U << 10U) / (sizeof(T) * channels * pitch() + 1);
    return even_share(std::max<std::size_t>(fit > reach() ? fit - reach() : 0, 4));
  }
  /// At most `rows`, so that all strips are of about the same height.
  [[nodiscard]] std::size_t even_share(std::size_t rows) const {
    return divide_up(out_height, divide_up(out_height, std::max<std::size_t>(rows, 1)));
  }
};

/// A strip of an image with zeros around it.
template <typename T>
class padded_strip {
 public:
  padded_strip(const sliding_window& w, std::size_t rows)
      : w_(w),
        // A register may be read beyond the last pixel.
        memory_(tensor<T>::zeros({w.channels * w.plane(rows) + lanes_of<T>})) {}

  /// Copies the pixels that the windows of rows [first, first + rows) cover.
  void fill(const T* image, std::size_t first, std::size_t rows) {
    const std::size_t pitch = w_.pitch();
    rows_ = rows;
    T* to = memory_.data();
    for (std::size_t c = 0; c < w_.channels; ++c) {
      for (std::size_t y = first; y < first + rows + w_.reach(); ++y, to += pitch) {
        if (y < w_.top || y >= w_.top + w_.height) {
          std::fill_n(to, pitch, T(0));
          continue;
        }
        std::fill_n(to, w_.left, T(0));
        std::copy_n(image + (c * w_.height + y - w_.top) * w_.width, w_.width, to + w_.left);
        std::fill(to + w_.left + w_.width, to + pitch, T(0));
      }
    }
  }
  /// The pixel at tap (c, ky, kx) of the strip's first window.
  [[nodiscard]] const T* at(std::size_t c, std::size_t ky, std::size_t kx) const {
    return memory_.data() + c * w_.plane(rows_) + ky * w_.dilation * w_.pitch() + kx * w_.dilation;
  }

 private:
  sliding_window w_;
  tensor<T> memory_;
  std::size_t rows_ = 0;
};

/// weight(output, tap) of all outputs in the order in which slide() reads them.
template <typename T, typename Weight>
[[nodiscard]] tensor<T> pack_weights(std::size_t outputs, std::size_t taps, Weight&& weight) {
  const std::size_t blocks = divide_up(outputs, outputs_at_once);
  const tensor<T> packed = tensor<T>::empty({blocks, taps, outputs_at_once});
  T* to = packed.data();
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t tap = 0; tap < taps; ++tap) {
      for (std::size_t i = 0; i < outputs_at_once; ++i) {
        const std::size_t output = block * outputs_at_once + i;
        *to++ = output < outputs ? weight(output, tap) : T(0);
      }
    }
  }
  return packed;
}

/// Products of a block of outputs with `Vectors` registers of windows, from `offset` on.
template <std::size_t Vectors, typename T>
[[gnu::noinline]] void slide_block(const sliding_window& w, const padded_strip<T>& strip,
                                   const T* weight, std::size_t offset, T* result,
                                   std::size_t result_pitch) {
  using vector = simd::vector_of<T>;
  vector sum[outputs_at_once][Vectors] = {};
  for (std::size_t c = 0; c < w.channels; ++c) {
    for (std::size_t ky = 0; ky < w.kernel_height; ++ky) {
      const T* from = strip.at(c, ky, 0) + offset;
      for (std::size_t kx = 0; kx < w.kernel_width; ++kx) {
        vector x[Vectors];
#pragma GCC unroll 8
        for (std::size_t v = 0; v < Vectors; ++v) {
          std::memcpy(&x[v], from + v * lanes_of<T>, sizeof(vector));
          product::hold(x[v]);
        }
#pragma GCC unroll 8
        for (std::size_t o = 0; o < outputs_at_once; ++o) {
#pragma GCC unroll 8
          for (std::size_t v = 0; v < Vectors; ++v) {
            sum[o][v] = simd::fma(x[v], all_of<vector>(weight[o]), sum[o][v]);
          }
        }
        weight += outputs_at_once;
        from += w.dilation;
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t o = 0; o < outputs_at_once; ++o) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      std::memcpy(result + o * result_pitch + v * lanes_of<T>, &sum[o][v], sizeof(vector));
    }
  }
}

template <typename T, std::size_t Vectors = vectors_at_once>
void slide_vectors(std::size_t vectors, const sliding_window& w, const padded_strip<T>& strip,
                   const T* weight, std::size_t offset, T* result, std::size_t result_pitch) {
  if constexpr (Vectors > 0) {
    if (vectors < Vectors) {
      slide_vectors<T, Vectors - 1>(vectors, w, strip, weight, offset, result, result_pitch);
    } else {
      slide_block<Vectors>(w, strip, weight, offset, result, result_pitch);
    }
  }
}

/// All products of one image: row(output, y, values) is called once with each row of the result.
template <typename T, typename Row>
void slide(const sliding_window& w, const T* image, const tensor<T>& weights, std::size_t outputs,
           Row&& row) {
  const std::size_t rows = w.strip_rows<T>(), pitch = w.pitch();
  const std::size_t most = divide_up(rows * pitch, lanes_of<T>) * lanes_of<T>;
  padded_strip<T> strip(w, rows);
  const tensor<T> products = tensor<T>::empty({outputs_at_once, most});
  for (std::size_t first = 0; first < w.out_height; first += rows) {
    const std::size_t here = std::min(rows, w.out_height - first);
    strip.fill(image, first, here);
    const std::size_t vectors = divide_up((here - 1) * pitch + w.out_width, lanes_of<T>);
    const std::size_t blocks = divide_up(vectors, vectors_at_once);
    for (std::size_t begin = 0; begin < outputs; begin += outputs_at_once) {
      for (std::size_t block = 0; block < blocks; ++block) {
        const std::size_t from = block * vectors / blocks, to = (block + 1) * vectors / blocks;
        slide_vectors(to - from, w, strip, weights.data() + begin * w.taps(), from * lanes_of<T>,
                      products.data() + from * lanes_of<T>, most);
      }
      for (std::size_t o = begin; o < std::min(outputs, begin + outputs_at_once); ++o) {
        for (std::size_t y = 0; y < here; ++y) {
          row(o, first + y, products.data() + (o - begin) * most + y * pitch);
        }
      }
    }
  }
}

/// sums (taps, padded outputs) += the products of `Taps` pixels of each window, `tap[i]` of the
/// first, with `Vectors` registers of its gradient.
template <std::size_t Taps, std::size_t Vectors, typename T>
[[gnu::noinline]] void correlate_block(const sliding_window& w, std::size_t rows,
                                       const std::array<const T*, taps_at_once>& tap,
                                       const T* gradient, T* sums, std::size_t outputs) {
  using vector = simd::vector_of<T>;
  vector sum[Taps][Vectors] = {};
  for (std::size_t y = 0; y < rows; ++y) {
    const std::size_t begin = y * w.pitch();
    for (std::size_t at = begin; at < begin + w.out_width; ++at, gradient += outputs) {
      vector g[Vectors];
#pragma GCC unroll 8
      for (std::size_t v = 0; v < Vectors; ++v) {
        std::memcpy(&g[v], gradient + v * lanes_of<T>, sizeof(vector));
        product::hold(g[v]);
      }
#pragma GCC unroll 8
      for (std::size_t i = 0; i < Taps; ++i) {
#pragma GCC unroll 8
        for (std::size_t v = 0; v < Vectors; ++v) {
          sum[i][v] = simd::fma(g[v], all_of<vector>(tap[i][at]), sum[i][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < Taps; ++i) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < Vectors; ++v) {
      vector old;
      T* const place = sums + i * outputs + v * lanes_of<T>;
      std::memcpy(&old, place, sizeof(vector));
      sum[i][v] += old;
      std::memcpy(place, &sum[i][v], sizeof(vector));
    }
  }
}

template <std::size_t Vectors, typename T>
void correlate_taps(std::size_t taps, const sliding_window& w, std::size_t rows,
                    const std::array<const T*, taps_at_once>& tap, const T* gradient, T* sums,
                    std::size_t outputs) {
  switch (taps) {
    case 1:
      return correlate_block<1, Vectors>(w, rows, tap, gradient, sums, outputs);
    case 2:
      return correlate_block<2, Vectors>(w, rows, tap, gradient, sums, outputs);
    case 3:
      return correlate_block<3, Vectors>(w, rows, tap, gradient, sums, outputs);
    case 4:
      return correlate_block<4, Vectors>(w, rows, tap, gradient, sums, outputs);
    case 5:
      return correlate_block<5, Vectors>(w, rows, tap, gradient, sums, outputs);
    default:
      return correlate_block<6, Vectors>(w, rows, tap, gradient, sums, outputs);
  }
}

/// The gradient of the weight, summed over images. `w` is the forward window.
template <typename T>
class weight_gradient {
 public:
  weight_gradient(const sliding_window& w, std::size_t outputs)
      : w_(w),
        outputs_(outputs),
        padded_(divide_up(outputs, lanes_of<T>) * lanes_of<T>),
        // The gradients of four registers of outputs fit into a usual first-level cache.
        rows_(w.even_share((32U << 10U) / (4 * simd::register_bytes * w.out_width))),
        strip_(w, rows_),
        gradient_(tensor<T>::zeros({rows_ * w.out_width, padded_})),
        sums_(tensor<T>::zeros({w.taps(), padded_})) {}

  /// Adds the products of an image and the gradient of its result.
  void add(const T* image, const T* gradient) {
    constexpr std::size_t most = simd::register_bytes == 64 ? 4 : 2;
    for (std::size_t first = 0; first < w_.out_height; first += rows_) {
      const std::size_t rows = std::min(rows_, w_.out_height - first);
      strip_.fill(image, first, rows);
      outputs_last(gradient + first * w_.out_width, rows * w_.out_width);
      for (std::size_t begin = 0; begin < padded_;) {
        const std::size_t vectors = (padded_ - begin) / lanes_of<T>;
        if (vectors >= most) {
          correlate<most>(rows, begin);
          begin += most * lanes_of<T>;
        } else if (vectors >= 2) {
          correlate<2>(rows, begin);
          begin += 2 * lanes_of<T>;
        } else {
          correlate<1>(rows, begin);
          begin += lanes_of<T>;
        }
      }
    }
  }
  /// Adds the sums to target (outputs, taps).
  void add_to(T* target) const {
    for (std::size_t o = 0; o < outputs_; ++o) {
      for (std::size_t tap = 0; tap < w_.taps(); ++tap) {
        *target++ += sums_.data()[tap * padded_ + o];
      }
    }
  }

 private:
  /// Transposes the gradient of `count` windows: the outputs of a window become adjacent.
  void outputs_last(const T* gradient, std::size_t count) {
    const std::size_t pixels = w_.out_height * w_.out_width;
    T* const to = gradient_.data();
    std::size_t o = 0;
    for (; o + 4 <= outputs_; o += 4) {
      const T* const from = gradient + o * pixels;
      for (std::size_t i = 0; i < count; ++i) {
        const T values[] = {from[i], from[pixels + i], from[2 * pixels + i], from[3 * pixels + i]};
        std::memcpy(to + i * padded_ + o, values, sizeof values);
      }
    }
    for (; o < outputs_; ++o) {
      for (std::size_t i = 0; i < count; ++i) to[i * padded_ + o] = gradient[o * pixels + i];
    }
  }
  template <std::size_t Vectors>
  void correlate(std::size_t rows, std::size_t first_output) {
    const std::size_t area = w_.kernel_height * w_.kernel_width;
    const std::size_t blocks = divide_up(w_.taps(), taps_at_once);
    std::array<const T*, taps_at_once> tap{};
    for (std::size_t block = 0; block < blocks; ++block) {
      const std::size_t begin = block * w_.taps() / blocks;
      const std::size_t end = (block + 1) * w_.taps() / blocks;
      for (std::size_t i = begin; i < end; ++i) {
        tap[i - begin] = strip_.at(i / area, i % area / w_.kernel_width, i % w_.kernel_width);
      }
      correlate_taps<Vectors>(end - begin, w_, rows, tap, gradient_.data() + first_output,
                              sums_.data() + begin * padded_ + first_output, padded_);
    }
  }

  sliding_window w_;
  std::size_t outputs_, padded_, rows_;
  padded_strip<T> strip_;
  tensor<T> gradient_, sums_;
};

}  // namespace parx::detail
