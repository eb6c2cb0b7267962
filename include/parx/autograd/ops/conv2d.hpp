// conv2d: f(cross-correlation of images with kernels + bias) as one operation.
//
// With stride 1 the image is multiplied without being unrolled (detail/sliding_product.hpp); else
// it is unrolled (im2col), small images several at a time, so that the products are wide enough to
// be fast. Backward unrolls the image again rather than keeping the result. Bias and activation are
// applied to each block while it is in the cache, f' to the gradient of one image at a time.
// Chellapilla, Puri, Simard: High Performance Convolutional Neural Networks for Document Processing
// (2006).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/autograd/ops/detail/sliding_product.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>
#include <parx/core/parallel_for.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/matmul.hpp>
#include <parx/tensor/reduction.hpp>

namespace parx::inline PARX_ABI {

struct conv2d_options {
  std::size_t stride = 1;
  std::size_t padding = 0;   ///< zeros around the image, on every side
  std::size_t dilation = 1;  ///< pixels from one row or column of the kernel to the next
  std::size_t groups = 1;    ///< the channels are cut into this many parts, convolved separately
  parx::activation activation = parx::activation::none;  ///< applied to the result
};

namespace detail {

/// One convolution over all groups of all images. The images are cut into parts: part i is group
/// i % groups of image i / groups, with window.channels channels.
struct convolution {
  window2d window;      ///< of a part
  std::size_t outputs;  ///< of a part
  std::size_t groups;

  [[nodiscard]] bool slides() const {
    return window.stride == 1 && !window.is_identity() && window.padding <= window.reach_down() &&
           window.padding <= window.reach_right();
  }
  [[nodiscard]] std::size_t parts_at_once(std::size_t parts) const {
    return groups > 1 || slides() ? 1 : window.images_at_once(parts);
  }
  /// Of a thread: 50 us of multiply-adds or more, and whole groups of `together` parts.
  [[nodiscard]] std::size_t parts_of_a_task(std::size_t together = 1) const {
    constexpr std::size_t multiply_adds = std::size_t{1} << 22U;
    const std::size_t one = std::max<std::size_t>(out_size() * window.unrolled_rows(), 1);
    return divide_up(std::max<std::size_t>(multiply_adds / one, 1), together) * together;
  }
  [[nodiscard]] std::size_t out_size() const { return outputs * window.out_pixels(); }
  [[nodiscard]] std::size_t weight_size() const { return outputs * window.unrolled_rows(); }
};

/// y = f(z), after z was rounded to `type`; they may be the same memory.
template <typename Function, typename T>
void round_and_activate(std::size_t count, dtype type, T* z, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    if (type != dtype::float32) round_values(z, z, count, type);
  }
  activate_values<Function>(count, z, y);
}

/// y = f(z), z = the convolution plus bias (may be null), rounded to `type`. y may be z.
template <typename Function, typename T>
void slide_forward(const convolution& conv, std::size_t parts, const T* x, const T* weight,
                   const T* bias, dtype type, T* z, T* y) {
  const bool rounds = std::is_same_v<T, float> && type != dtype::float32;
  const sliding_window w = sliding_window::forward(conv.window);
  std::vector<tensor<T>, pool_allocator<tensor<T>>> packed;
  for (std::size_t g = 0; g < conv.groups; ++g) {
    packed.push_back(pack_weights<T>(conv.outputs, w.taps(), [&](std::size_t o, std::size_t tap) {
      return weight[(g * conv.outputs + o) * w.taps() + tap];
    }));
  }
  parallel_for(parts, conv.parts_of_a_task(), [&](std::size_t part, std::size_t last) {
    for (; part < last; ++part) {
      const std::size_t group = part % conv.groups, first = part * conv.out_size();
      slide(w, x + part * conv.window.image_size(), packed[group], conv.outputs,
            [&](std::size_t o, std::size_t row, const T* product) {
              const std::size_t at = first + (o * w.out_height + row) * w.out_width;
              const T b = bias != nullptr ? bias[group * conv.outputs + o] : T(0);
              if (rounds) {
                for (std::size_t i = 0; i < w.out_width; ++i) z[at + i] = product[i] + b;
                return;
              }
              for_each_packet<T>(w.out_width, [&](std::size_t i, auto... left) PARX_PACKET_BODY {
                const packet<T> sum = load_packet(product + i, left...) + b;
                if (z != y) store_packet(z + at + i, sum, left...);
                store_packet(y + at + i, value_of<Function>(sum), left...);
              });
            });
      if (rounds) round_and_activate<Function>(conv.out_size(), type, z + first, y + first);
    }
  });
}

template <typename Function, typename T>
void unroll_forward(const convolution& conv, std::size_t parts, const T* x, const T* weight,
                    const T* bias, dtype type, T* z, T* y) {
  const window2d& w = conv.window;
  const std::size_t pixels = w.out_pixels(), unrolled = w.unrolled_rows(), out = conv.outputs;
  const std::size_t together = conv.parts_at_once(parts);
  parallel_for(parts, conv.parts_of_a_task(together), [&](std::size_t first, std::size_t last) {
    const tensor<T> columns =
        w.is_identity() ? tensor<T>() : tensor<T>::empty({unrolled, together * pixels});
    const tensor<T> product =
        together == 1 ? tensor<T>() : tensor<T>::empty({out, together * pixels});
    for (; first < last; first += together) {
      const std::size_t count = std::min(together, last - first), width = count * pixels;
      const std::size_t group = first % conv.groups, at = first * conv.out_size();
      const T* unrolled_images = x + first * w.image_size();
      if (!w.is_identity()) {
        unroll(w, unrolled_images, count, columns.data());
        unrolled_images = columns.data();
      }
      T* const result = together == 1 ? z + at : product.data();
      if (bias != nullptr) {
        for (std::size_t o = 0; o < out; ++o) {
          std::fill_n(result + o * width, width, bias[group * out + o]);
        }
      }
      gemm(op::plain, op::plain, out, width, unrolled, T(1), weight + group * conv.weight_size(),
           unrolled, unrolled_images, width, bias != nullptr ? T(1) : T(0), result, width);
      if (together > 1) swap_images_and_channels(product.data(), out, count, pixels, z + at);
      round_and_activate<Function>(count * conv.out_size(), type, z + at, y + at);
    }
  });
}

/// The memory of the gradients that are needed; the others are not defined().
template <typename T>
struct convolution_gradients {
  gradient_memory<T> x, weight, bias;
};

/// Adds the sum of `count` values of each output to the bias's gradient.
template <typename T>
void add_bias_gradient(const T* gradient, std::size_t outputs, std::size_t count, T* bias) {
  for (std::size_t o = 0; o < outputs; ++o) {
    const T* const of_output = gradient + o * count;
    bias[o] += reduce_lanes(0, count, T(0), add_op{}, adjacent<T>{of_output});
  }
}

/// gradient_of(first, count) is the gradient of the activation's input, for `count` parts: here of
/// first_part ... last_part - 1. The sums in `to` of weight and bias are added to.
template <typename T, typename GradientOf>
void slide_backward(const convolution& conv, std::size_t first_part, std::size_t last_part,
                    const T* x, const T* weight, GradientOf&& gradient_of,
                    const convolution_gradients<T>& to) {
  const sliding_window w = sliding_window::forward(conv.window);
  const sliding_window back = sliding_window::backward(conv.window, conv.outputs);
  const std::size_t area = w.kernel_height * w.kernel_width;
  std::vector<weight_gradient<T>, pool_allocator<weight_gradient<T>>> weight_sums;
  std::vector<tensor<T>, pool_allocator<tensor<T>>> packed;
  for (std::size_t g = 0; g < conv.groups; ++g) {
    if (to.weight.values.defined()) weight_sums.emplace_back(w, conv.outputs);
    if (!to.x.values.defined()) continue;
    const T* const kernels = weight + g * conv.weight_size();
    packed.push_back(pack_weights<T>(w.channels, back.taps(), [=](std::size_t c, std::size_t tap) {
      return kernels[(tap / area * w.channels + c) * area + area - 1 - tap % area];
    }));
  }
  for (std::size_t part = first_part; part < last_part; ++part) {
    const std::size_t group = part % conv.groups, first = part * conv.window.image_size();
    const T* const u = gradient_of(part, std::size_t{1});
    if (to.bias.values.defined()) {
      add_bias_gradient(u, conv.outputs, conv.window.out_pixels(),
                        to.bias.values.data() + group * conv.outputs);
    }
    if (to.weight.values.defined()) weight_sums[group].add(x + first, u);
    if (!to.x.values.defined()) continue;
    slide(back, u, packed[group], w.channels, [&](std::size_t c, std::size_t row, const T* values) {
      T* const target = to.x.values.data() + first + (c * w.height + row) * w.width;
      if (to.x.add) {
        for (std::size_t i = 0; i < w.width; ++i) target[i] += values[i];
      } else {
        std::copy_n(values, w.width, target);
      }
    });
  }
  for (std::size_t g = 0; g < weight_sums.size(); ++g) {
    weight_sums[g].add_to(to.weight.values.data() + g * conv.weight_size());
  }
}

/// As slide_backward, for `together` parts at a time.
template <typename T, typename GradientOf>
void unroll_backward(const convolution& conv, std::size_t first_part, std::size_t last_part,
                     std::size_t together, const T* x, const T* weight, GradientOf&& gradient_of,
                     const convolution_gradients<T>& to) {
  const window2d& w = conv.window;
  const std::size_t pixels = w.out_pixels(), unrolled = w.unrolled_rows(), out = conv.outputs;
  const tensor<T> columns =
      w.is_identity() ? tensor<T>() : tensor<T>::empty({unrolled, together * pixels});
  const tensor<T> gathered =
      together == 1 ? tensor<T>() : tensor<T>::empty({out, together * pixels});
  for (std::size_t first = first_part; first < last_part; first += together) {
    const std::size_t count = std::min(together, last_part - first), width = count * pixels;
    const std::size_t group = first % conv.groups;
    const T* u = gradient_of(first, count);
    if (together > 1) {
      swap_images_and_channels(u, count, out, pixels, gathered.data());
      u = gathered.data();
    }
    if (to.bias.values.defined()) {
      add_bias_gradient(u, out, width, to.bias.values.data() + group * out);
    }
    if (to.weight.values.defined()) {
      const T* unrolled_images = x + first * w.image_size();
      if (!w.is_identity()) {
        unroll(w, unrolled_images, count, columns.data());
        unrolled_images = columns.data();
      }
      gemm(op::plain, op::transposed, out, unrolled, width, T(1), u, width, unrolled_images, width,
           T(1), to.weight.values.data() + group * conv.weight_size(), unrolled);
    }
    if (!to.x.values.defined()) continue;
    T* const image = to.x.values.data() + first * w.image_size();
    // An unrolled gradient is added back pixel by pixel; an image that is its own unrolling is
    // overwritten.
    if (!to.x.add && !w.is_identity()) std::fill_n(image, count * w.image_size(), T(0));
    gemm(op::transposed, op::plain, unrolled, width, out, T(1), weight + group * conv.weight_size(),
         unrolled, u, width, w.is_identity() ? to.x.beta() : T(0),
         w.is_identity() ? image : columns.data(), width);
    if (!w.is_identity()) roll_back(w, columns.data(), count, image);
  }
}

/// Calls of_parts(first, last, gradients) for blocks of parts, by the threads of the rank. Each
/// block has sums of its own for weight and bias, which are added in order: the blocks depend on
/// sizes alone.
template <typename T, typename OfParts>
void backward_by_blocks(const convolution& conv, std::size_t parts, std::size_t together,
                        const convolution_gradients<T>& to, const OfParts& of_parts) {
  constexpr std::size_t most_blocks = 16;  // each has a sum of the weight's size
  const std::size_t unit = conv.groups * together;
  const std::size_t grain =
      divide_up(std::max(conv.parts_of_a_task(together), divide_up(parts, most_blocks)), unit) *
      unit;
  const std::size_t blocks = std::max<std::size_t>(divide_up(parts, grain), 1);
  const auto sums_of = [&](const gradient_memory<T>& whole) {
    return whole.values.defined() ? tensor<T>::zeros({blocks, whole.values.size()}) : tensor<T>();
  };
  const tensor<T> weights = sums_of(to.weight), biases = sums_of(to.bias);
  parallel_for(parts, grain, [&](std::size_t first, std::size_t last) {
    const auto part_of = [&](const tensor<T>& sums) -> gradient_memory<T> {
      return {sums.defined() ? sums.select(0, first / grain) : tensor<T>(), true};
    };
    of_parts(first, last, convolution_gradients<T>{to.x, part_of(weights), part_of(biases)});
  });
  const auto add_up = [&](const gradient_memory<T>& whole, const tensor<T>& sums) {
    if (!whole.values.defined()) return;
    const accumulate how = whole.add ? accumulate::add : accumulate::overwrite;
    sum_into(sums, whole.values.reshape({whole.values.size()}), how);
  };
  add_up(to.weight, weights);
  add_up(to.bias, biases);
}

}  // namespace detail

/// x (images, in, height, width), weight (out, in / groups, kernel height, kernel width), bias
/// (out) or not defined(). The result is (images, out, rows, columns) with rows =
/// (height + 2 padding - dilation (kernel height - 1) - 1) / stride + 1. Throws usage_error naming
/// the shapes that do not fit. Source: PyTorch's Conv2d.
template <typename T>
[[nodiscard]] variable<T> conv2d(const variable<T>& x, const variable<T>& weight,
                                 const variable<T>& bias = {}, const conv2d_options& options = {},
                                 call_site = call_site::current()) {
  const std::size_t groups = options.groups;
  require(groups > 0 && x.rank() == 4 && weight.rank() == 4 &&
              x.extent(1) == groups * weight.extent(1) && weight.extent(0) % groups == 0,
          "conv2d: an input of shape {} and a weight of shape {} do not fit with {} groups: "
          "(images, in, height, width) and (out, in / groups, kernel height, kernel width) are "
          "needed",
          to_string(x.shape()), to_string(weight.shape()), groups);
  require(!bias.defined() || bias.shape() == shape{weight.extent(0)},
          "conv2d: a bias of shape {} does not fit a weight of shape {}",
          bias.defined() ? to_string(bias.shape()) : "", to_string(weight.shape()));
  const detail::convolution conv{.window = {.channels = weight.extent(1),
                                            .height = x.extent(2),
                                            .width = x.extent(3),
                                            .kernel_height = weight.extent(2),
                                            .kernel_width = weight.extent(3),
                                            .stride = options.stride,
                                            .padding = options.padding,
                                            .dilation = options.dilation},
                                 .outputs = weight.extent(0) / groups,
                                 .groups = groups};
  conv.window.check("conv2d");
  const activation f = options.activation;
  const std::size_t parts = x.extent(0) * groups;
  const detail::product_operand<T> left(x, detail::products_by::floats),
      right(weight, detail::products_by::floats);
  const tensor<T> input = left.values().contiguous(), kernels = right.values().contiguous();
  const tensor<T> b = bias.defined() ? bias.value().contiguous() : tensor<T>();
  const shape s{x.extent(0), weight.extent(0), conv.window.out_height(), conv.window.out_width()};
  tensor<T> y = tensor<T>::empty(s);
  const bool in_place = f == activation::none || f == activation::relu || !records(x, weight, bias);
  const tensor<T> z = in_place ? y : tensor<T>::empty(s);
  detail::with_activation<T>(f, [&]<typename Function>(Function) {
    const auto forward =
        conv.slides() ? detail::slide_forward<Function, T> : detail::unroll_forward<Function, T>;
    forward(conv, parts, input.data(), kernels.data(), b.data(), detail::autocast_type(), z.data(),
            y.data());
  });
  const detail::saved<T> before = f == activation::none ? detail::saved<T>() : detail::saved<T>(z);
  return differentiable(
      std::move(y),
      [=, left = left.kept(), right = right.kept(), type = detail::autocast_type()](
          const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dweight, grad_sink<T> dbias) {
        detail::convolution_gradients<T> to;
        if (dx.needed()) to.x = dx.memory();
        if (dweight.needed()) to.weight = dweight.memory();
        if (dbias.needed()) to.bias = dbias.memory();
        const std::size_t size = conv.out_size();
        const std::size_t together = conv.parts_at_once(parts);
        const bool is_made = f != activation::none || type != dtype::float32;
        const auto gradient_of = [&](std::size_t first, std::size_t count, T* made) {
          const T* u = upstream.data() + first * size;
          if (f != activation::none) {
            const T* const v = before.read(first * size, count * size, made);
            detail::with_activation<T>(f, [&]<typename Function>(Function) {
              detail::multiply_by_slope<Function>(count * size, u, v, made);
            });
            u = made;
          }
          if constexpr (std::is_same_v<T, float>) {
            if (type != dtype::float32) {
              detail::round_values(u, made, count * size, type);
              u = made;
            }
          }
          return u;
        };
        const tensor<T> image = left.values().contiguous(), filter = right.values().contiguous();
        detail::backward_by_blocks(
            conv, parts, together, to,
            [&](std::size_t begin, std::size_t end, const detail::convolution_gradients<T>& sums) {
              const tensor<T> made = is_made ? tensor<T>::empty({together, size}) : tensor<T>();
              const auto u = [&](std::size_t first, std::size_t count) {
                return gradient_of(first, count, made.data());
              };
              if (conv.slides()) {
                detail::slide_backward(conv, begin, end, image.data(), filter.data(), u, sums);
              } else {
                detail::unroll_backward(conv, begin, end, together, image.data(), filter.data(), u,
                                        sums);
              }
            });
      },
      x, weight, bias);
}

}  // namespace parx
