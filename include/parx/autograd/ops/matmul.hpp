// matmul and linear: products of matrices. Gradients use transposed products; nothing is transposed
// in memory.
#pragma once

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx {

namespace detail {

/// Contributes op(a) op(b) to a gradient whose batch axes may have been broadcast.
template <typename T>
void contribute_product(const grad_sink<T>& sink, const shape& batch, op op_a, const tensor<T>& a,
                        op op_b, const tensor<T>& b) {
  const shape& s = sink.shape();
  if (batch_shape(s) == batch) {
    const auto target = sink.memory();
    batched_gemm(op_a, a, op_b, b, target.beta(), target.values);
    return;
  }
  shape whole = batch;
  whole.push_back(s[s.rank() - 2]);
  whole.push_back(s[s.rank() - 1]);
  const tensor<T> product = tensor<T>::empty(whole);
  batched_gemm(op_a, a, op_b, b, T(0), product);
  sink.add_broadcast(product);
}

}  // namespace detail

/// a (..., m, k) times b (..., k, n), batch axes broadcast: see matmul of tensors.
template <typename T>
[[nodiscard]] variable<T> matmul(const variable<T>& a, const variable<T>& b) {
  const detail::product_operand<T> left(a), right(b);
  tensor<T> product = matmul(left.values(), right.values());
  detail::round_result(product);
  return differentiable(
      std::move(product),
      [left = left.kept(), right = right.kept(), type = detail::autocast_type()](
          const tensor<T>& gradient, grad_sink<T> da, grad_sink<T> db) {
        const tensor<T> upstream = detail::rounded(gradient, type);
        const tensor<T> x = db.needed() ? left.values() : tensor<T>();
        const tensor<T> y = right.values();
        const shape batch = detail::batch_shape(upstream.shape());
        if (da.needed()) {
          detail::contribute_product(da, batch, op::plain, upstream, op::transposed, y);
        }
        if (!db.needed()) return;
        if (y.rank() == 2 && x.rank() > 2) {
          // One matrix for the whole batch: its gradient is one tall product, not a sum of small
          // ones.
          detail::contribute_product(
              db, {}, op::transposed, x.reshape({x.size() / x.extent(-1), x.extent(-1)}), op::plain,
              upstream.reshape({upstream.size() / upstream.extent(-1), upstream.extent(-1)}));
        } else {
          detail::contribute_product(db, batch, op::transposed, x, op::plain, upstream);
        }
      },
      a, b);
}

/// y = x W^T + b: x is (..., in), the weight (out, in) as in PyTorch, the bias (out) or not
/// defined(). Throws usage_error naming the shapes that do not fit.
template <typename T>
[[nodiscard]] variable<T> linear(const variable<T>& x, const variable<T>& weight,
                                 const variable<T>& bias = {}) {
  require(
      weight.rank() == 2 && x.rank() >= 1 && x.extent(-1) == weight.extent(1),
      "linear: input of shape {} and weight of shape {} do not fit: the last axes must be equal",
      to_string(x.shape()), to_string(weight.shape()));
  const std::size_t out = weight.extent(0), in = weight.extent(1);
  require(!bias.defined() || bias.shape() == shape{out},
          "linear: a bias of shape {} does not fit a weight of shape {}",
          bias.defined() ? to_string(bias.shape()) : "", to_string(weight.shape()));
  const detail::product_operand<T> left(x), right(weight);
  const tensor<T> input = left.values().contiguous();
  const tensor<T> w = right.values().contiguous();
  const std::size_t rows = input.size() / std::max<std::size_t>(in, 1);
  shape s = x.shape();
  s[s.rank() - 1] = out;
  tensor<T> y = tensor<T>::empty(s);
  if (bias.defined()) {
    const tensor<T> b = bias.value().contiguous();
    for (std::size_t row = 0; row < rows; ++row) std::copy_n(b.data(), out, y.data() + row * out);
  }
  gemm(op::plain, op::transposed, rows, out, in, T(1), input.data(), in, w.data(), in,
       bias.defined() ? T(1) : T(0), y.data(), out);
  detail::round_result(y);
  return differentiable(
      std::move(y),
      [=, left = left.kept(), right = right.kept(), type = detail::autocast_type()](
          const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dw, grad_sink<T> db) {
        const tensor<T> rounded = detail::rounded(upstream, type);
        const T* const u = rounded.data();
        if (db.needed()) {
          const auto target = db.memory();
          sum_into(upstream.reshape({rows, out}), target.values,
                   target.add ? accumulate::add : accumulate::overwrite);
        }
        if (dw.needed()) {
          const auto target = dw.memory();
          const tensor<T> kept = left.values().contiguous();
          gemm(op::transposed, op::plain, out, in, rows, T(1), u, out, kept.data(), in,
               target.beta(), target.values.data(), in);
        }
        if (dx.needed()) {
          const auto target = dx.memory();
          const tensor<T> kept = right.values().contiguous();
          gemm(op::plain, op::plain, rows, in, out, T(1), u, out, kept.data(), in, target.beta(),
               target.values.data(), in);
        }
      },
      x, weight, bias);
}

}  // namespace parx
