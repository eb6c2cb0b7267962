// conv1d, conv_transpose2d and conv_transpose1d.
//
// A transposed convolution is the gradient of conv2d with respect to its image: each pixel of x
// times the kernel is added to the result, `stride` pixels apart. Dumoulin, Visin: A guide to
// convolution arithmetic for deep learning (arXiv 1603.07285).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/arrange.hpp>
#include <parx/autograd/ops/conv2d.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

/// x (n, in, length), weight (out, in / groups, kernel), bias (out) or not defined(); the result is
/// (n, out, (length + 2 padding - dilation (kernel - 1) - 1) / stride + 1). See conv2d.
template <typename T>
[[nodiscard]] variable<T> conv1d(const variable<T>& x, const variable<T>& weight,
                                 const variable<T>& bias = {}, const conv2d_options& options = {},
                                 call_site = call_site::current()) {
  require(x.rank() == 3 && weight.rank() == 3,
          "conv1d: an input of shape {} and a weight of shape {}: (n, in, length) and (out, in / "
          "groups, kernel) are needed",
          to_string(x.shape()), to_string(weight.shape()));
  conv2d_options flat = options;
  flat.padding = 0;
  const variable<T> padded = pad(x, {options.padding, options.padding});
  return squeeze(conv2d(unsqueeze(padded, 2), unsqueeze(weight, 2), bias, flat), 2);
}

struct conv_transpose_options {
  std::size_t stride = 1;
  std::size_t padding = 0;         ///< pixels left out at every border of the result
  std::size_t output_padding = 0;  ///< further pixels below and to the right, fewer than a stride
  std::size_t dilation = 1;
  std::size_t groups = 1;
};

/// x (images, in, height, width), weight (in, out / groups, kernel height, kernel width), bias
/// (out) or not defined(). The result is (images, out, rows, columns) with rows = (height - 1)
/// stride - 2 padding + dilation (kernel height - 1) + output_padding + 1. Throws usage_error
/// naming the shapes that do not fit. Source: PyTorch's ConvTranspose2d.
template <typename T>
[[nodiscard]] variable<T> conv_transpose2d(const variable<T>& x, const variable<T>& weight,
                                           const variable<T>& bias = {},
                                           const conv_transpose_options& options = {},
                                           call_site = call_site::current()) {
  const std::size_t groups = options.groups;
  require(groups > 0 && x.rank() == 4 && weight.rank() == 4 && x.extent(1) == weight.extent(0) &&
              x.extent(1) % groups == 0 && x.extent(2) * x.extent(3) > 0,
          "conv_transpose2d: an input of shape {} and a weight of shape {} do not fit with {} "
          "groups: (images, in, height, width) and (in, out / groups, kernel height, kernel width) "
          "are needed",
          to_string(x.shape()), to_string(weight.shape()), groups);
  const std::size_t images = x.extent(0), in = x.extent(1) / groups, out = weight.extent(1);
  require(!bias.defined() || bias.shape() == shape{out * groups},
          "conv_transpose2d: a bias of shape {} does not fit {} channels",
          bias.defined() ? to_string(bias.shape()) : "", out * groups);
  const auto size = [&](std::size_t extent, std::size_t kernel) {
    const std::size_t whole = (extent - 1) * options.stride + options.dilation * (kernel - 1) +
                              options.output_padding + 1;
    require(
        whole > 2 * options.padding && options.output_padding < options.stride,
        "conv_transpose2d: a padding of {} leaves nothing of {} pixels, or an output_padding of "
        "{} is not below the stride of {}",
        options.padding, whole, options.output_padding, options.stride);
    return whole - 2 * options.padding;
  };
  const detail::window2d w{.channels = out,  // of the result, whose windows are the pixels of x
                           .height = size(x.extent(2), weight.extent(2)),
                           .width = size(x.extent(3), weight.extent(3)),
                           .kernel_height = weight.extent(2),
                           .kernel_width = weight.extent(3),
                           .stride = options.stride,
                           .padding = options.padding,
                           .dilation = options.dilation};
  w.check("conv_transpose2d");
  const std::size_t pixels = w.out_pixels(), unrolled = w.unrolled_rows();
  const detail::product_operand<T> left(x, detail::products_by::floats),
      right(weight, detail::products_by::floats);
  const tensor<T> input = left.values().contiguous(), kernels = right.values().contiguous();
  const tensor<T> b = bias.defined() ? bias.value().contiguous() : tensor<T>();
  tensor<T> y = tensor<T>::empty({images, groups * out, w.height, w.width});
  // Part i is group i % groups of image i / groups.
  parallel_for(images * groups, 1, [&](std::size_t part, std::size_t last) {
    const tensor<T> columns = tensor<T>::empty({unrolled, pixels});
    for (; part < last; ++part) {
      const std::size_t group = part % groups, area = w.height * w.width;
      T* const result = y.data() + part * w.image_size();
      for (std::size_t o = 0; o < out; ++o) {
        std::fill_n(result + o * area, area, b.defined() ? b.data()[group * out + o] : T(0));
      }
      gemm(op::transposed, op::plain, unrolled, pixels, in, T(1),
           kernels.data() + group * in * unrolled, unrolled, input.data() + part * in * pixels,
           pixels, T(0), columns.data(), pixels);
      detail::roll_back(w, columns.data(), 1, result);
    }
  });
  detail::round_result(y);
  return differentiable(
      std::move(y),
      single_call([=, left = left.kept(), right = right.kept(), type = detail::autocast_type()](
                      const tensor<T>& gradient, grad_sink<T> dx, grad_sink<T> dweight,
                      grad_sink<T> dbias) {
        const tensor<T> upstream = detail::rounded(gradient, type);
        if (dbias.needed()) dbias.add(sum(upstream, {0, 2, 3}));
        if (!dx.needed() && !dweight.needed()) return;
        const tensor<T> image = left.values().contiguous(), filter = right.values().contiguous();
        const tensor<T> columns = tensor<T>::empty({unrolled, pixels});
        const auto to_x = dx.needed() ? dx.memory() : detail::gradient_memory<T>{};
        const tensor<T> to_weight = dweight.needed() ? dweight.zeroed() : tensor<T>();
        for (std::size_t part = 0; part < images * groups; ++part) {
          const std::size_t first = part % groups * in * unrolled;
          detail::unroll(w, upstream.data() + part * w.image_size(), 1, columns.data());
          if (dx.needed()) {
            gemm(op::plain, op::plain, in, pixels, unrolled, T(1), filter.data() + first, unrolled,
                 columns.data(), pixels, to_x.beta(), to_x.values.data() + part * in * pixels,
                 pixels);
          }
          if (dweight.needed()) {
            gemm(op::plain, op::transposed, in, unrolled, pixels, T(1),
                 image.data() + part * in * pixels, pixels, columns.data(), pixels, T(1),
                 to_weight.data() + first, unrolled);
          }
        }
      }),
      x, weight, bias);
}

/// x (n, in, length), weight (in, out / groups, kernel): likewise.
template <typename T>
[[nodiscard]] variable<T> conv_transpose1d(const variable<T>& x, const variable<T>& weight,
                                           const variable<T>& bias = {},
                                           const conv_transpose_options& options = {},
                                           call_site = call_site::current()) {
  require(x.rank() == 3 && weight.rank() == 3,
          "conv_transpose1d: an input of shape {} and a weight of shape {}: (n, in, length) and "
          "(in, out / groups, kernel) are needed",
          to_string(x.shape()), to_string(weight.shape()));
  // In two dimensions the one row would be cut by the padding: the elements are cut here.
  conv_transpose_options flat = options;
  flat.padding = 0;
  const variable<T> rows = conv_transpose2d(unsqueeze(x, 2), unsqueeze(weight, 2), bias, flat);
  const std::size_t whole = rows.extent(3);
  require(whole > 2 * options.padding, "conv_transpose1d: a padding of {} leaves nothing of {}",
          options.padding, whole);
  return slice(select(rows, 2, 0), 2, options.padding, whole - options.padding);
}

}  // namespace parx
