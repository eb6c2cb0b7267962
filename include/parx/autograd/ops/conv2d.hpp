// conv2d: cross-correlation of images with kernels, as matrix products of unrolled images (im2col).
//
// Small images are unrolled several at a time, so that the products are wide enough to be fast.
// Backward unrolls again rather than keeping kernel-size times the memory of the input alive.
// Chellapilla, Puri, Simard: High Performance Convolutional Neural Networks for Document Processing
// (2006).
#pragma once

#include <algorithm>
#include <cstddef>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/unroll.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx {

struct conv2d_options {
  std::size_t stride = 1;
  std::size_t padding = 0;  ///< zeros around the image, on every side
};

namespace detail {

template <typename T>
[[nodiscard]] tensor<T> conv2d_forward(const tensor<T>& x, const tensor<T>& weight,
                                       const tensor<T>& bias, const window2d& w) {
  const std::size_t images = x.shape()[0], out = weight.shape()[0];
  const std::size_t pixels = w.out_pixels(), unrolled = w.unrolled_rows();
  tensor<T> y = tensor<T>::empty({images, out, w.out_height(), w.out_width()});
  const std::size_t group = w.images_at_once(images);
  const tensor<T> columns = w.is_identity() ? x : tensor<T>::empty({unrolled, group * pixels});
  const tensor<T> product = group == 1 ? y : tensor<T>::empty({out, group * pixels});
  for (std::size_t first = 0; first < images; first += group) {
    const std::size_t count = std::min(group, images - first), width = count * pixels;
    const T* unrolled_images = x.data() + first * w.image_size();
    if (!w.is_identity()) {
      unroll(w, unrolled_images, count, columns.data());
      unrolled_images = columns.data();
    }
    T* const target = y.data() + first * out * pixels;
    T* const result = group == 1 ? target : product.data();
    if (bias.defined()) {
      for (std::size_t o = 0; o < out; ++o) std::fill_n(result + o * width, width, bias.data()[o]);
    }
    gemm(op::plain, op::plain, out, width, unrolled, T(1), weight.data(), unrolled, unrolled_images,
         width, bias.defined() ? T(1) : T(0), result, width);
    if (group > 1) swap_images_and_channels(product.data(), out, count, pixels, target);
  }
  return y;
}

template <typename T>
void conv2d_backward(const tensor<T>& upstream, const tensor<T>& x, const tensor<T>& weight,
                     const window2d& w, const grad_sink<T>& dx, const grad_sink<T>& dweight) {
  const std::size_t images = x.shape()[0], out = weight.shape()[0];
  const std::size_t pixels = w.out_pixels(), unrolled = w.unrolled_rows();
  const std::size_t group = w.images_at_once(images);
  const tensor<T> columns =
      w.is_identity() ? tensor<T>() : tensor<T>::empty({unrolled, group * pixels});
  const tensor<T> gathered = group == 1 ? tensor<T>() : tensor<T>::empty({out, group * pixels});
  const auto weight_target = dweight.needed() ? dweight.memory() : gradient_memory<T>{};
  // An unrolled gradient is added back pixel by pixel; an image that is its own unrolling is
  // overwritten.
  gradient_memory<T> image_target;
  if (dx.needed())
    image_target = w.is_identity() ? dx.memory() : gradient_memory<T>{dx.zeroed(), true};
  for (std::size_t first = 0; first < images; first += group) {
    const std::size_t count = std::min(group, images - first), width = count * pixels;
    const T* u = upstream.data() + first * out * pixels;
    if (group > 1) {
      swap_images_and_channels(u, count, out, pixels, gathered.data());
      u = gathered.data();
    }
    if (dweight.needed()) {
      const T* unrolled_images = x.data() + first * w.image_size();
      if (!w.is_identity()) {
        unroll(w, unrolled_images, count, columns.data());
        unrolled_images = columns.data();
      }
      gemm(op::plain, op::transposed, out, unrolled, width, T(1), u, width, unrolled_images, width,
           first == 0 ? weight_target.beta() : T(1), weight_target.values.data(), unrolled);
    }
    if (!dx.needed()) continue;
    T* const image = image_target.values.data() + first * w.image_size();
    T* const target = w.is_identity() ? image : columns.data();
    gemm(op::transposed, op::plain, unrolled, width, out, T(1), weight.data(), unrolled, u, width,
         w.is_identity() ? image_target.beta() : T(0), target, width);
    if (!w.is_identity()) roll_back(w, columns.data(), count, image);
  }
  // No image, no product: the gradient is zero, not what was in memory.
  if (images == 0 && dweight.needed() && !weight_target.add) weight_target.values.fill(T(0));
}

}  // namespace detail

/// x (images, in, height, width), weight (out, in, kernel height, kernel width), bias (out) or not
/// defined(); the result is (images, out, (height + 2 padding - kernel height) / stride + 1, ...).
/// Throws usage_error naming the shapes that do not fit.
template <typename T>
[[nodiscard]] variable<T> conv2d(const variable<T>& x, const variable<T>& weight,
                                 const variable<T>& bias = {}, const conv2d_options& options = {}) {
  require(x.rank() == 4 && weight.rank() == 4 && x.extent(1) == weight.extent(1),
          "conv2d: an input of shape {} and a weight of shape {} do not fit: (images, in, height, "
          "width) "
          "and (out, in, kernel height, kernel width) are needed",
          to_string(x.shape()), to_string(weight.shape()));
  require(!bias.defined() || bias.shape() == shape{weight.extent(0)},
          "conv2d: a bias of shape {} does not fit a weight of shape {}",
          bias.defined() ? to_string(bias.shape()) : "", to_string(weight.shape()));
  const detail::window2d window{.channels = x.extent(1),
                                .height = x.extent(2),
                                .width = x.extent(3),
                                .kernel_height = weight.extent(2),
                                .kernel_width = weight.extent(3),
                                .stride = options.stride,
                                .padding = options.padding};
  window.check("conv2d");
  const detail::product_operand<T> left(x), right(weight);
  tensor<T> y = detail::conv2d_forward(
      left.values().contiguous(), right.values().contiguous(),
      bias.defined() ? bias.value().contiguous() : tensor<T>(), window);
  detail::round_result(y);
  return differentiable(
      std::move(y),
      [left = left.kept(), right = right.kept(), window, type = detail::autocast_type()](
          const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dweight, grad_sink<T> dbias) {
        if (dbias.needed()) {
          const auto target = dbias.memory();
          const std::size_t images = upstream.shape()[0], out = upstream.shape()[1];
          sum_into(upstream.reshape({images, out, window.out_pixels()}),
                   target.values.reshape({out, 1}),
                   target.add ? accumulate::add : accumulate::overwrite);
        }
        detail::conv2d_backward(detail::rounded(upstream, type), left.values().contiguous(),
                                right.values().contiguous(), window, dx, dweight);
      },
      x, weight, bias);
}

}  // namespace parx
