// matmul: products of matrices. Gradients use transposed products; nothing is transposed in memory.
#pragma once

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// Contributes op(a) op(b) to a gradient whose batch axes may have been broadcast.
template <typename T>
void contribute_product(const grad_sink<T>& sink, const shape& batch, op op_a, const tensor<T>& a,
                        op op_b, const tensor<T>& b, dtype products) {
  const shape& s = sink.shape();
  if (batch_shape(s) == batch) {
    const auto target = sink.memory();
    batched_gemm(op_a, a, op_b, b, target.beta(), target.values, products);
    return;
  }
  shape whole = batch;
  whole.push_back(s[s.rank() - 2]);
  whole.push_back(s[s.rank() - 1]);
  const tensor<T> product = tensor<T>::empty(whole);
  batched_gemm(op_a, a, op_b, b, T(0), product, products);
  sink.add_broadcast(product);
}

}  // namespace detail

/// a (..., m, k) times b (..., k, n), batch axes broadcast: see matmul of tensors.
template <typename T>
[[nodiscard]] variable<T> matmul(const variable<T>& a, const variable<T>& b,
                                 call_site site = call_site::current()) {
  const detail::product_operand<T> left(a, detail::products_by::gemm),
      right(b, detail::products_by::gemm);
  tensor<T> product = matmul(left.values(), right.values(), site, detail::autocast_type());
  detail::round_result(product);
  return differentiable(
      std::move(product),
      [left = left.kept(), right = right.kept(), type = detail::autocast_type()](
          const tensor<T>& gradient, grad_sink<T> da, grad_sink<T> db) mutable {
        const tensor<T> upstream = detail::rounded_for_gemm(gradient, type);
        const tensor<T> x = db.needed() ? left.unrounded() : tensor<T>();
        const tensor<T> y = da.needed() ? right.unrounded() : tensor<T>();
        const shape batch = batch_shape(upstream.shape());
        // b's gradient first, because b is more often a parameter.
        if (db.needed() && db.shape().rank() == 2 && x.rank() > 2) {
          // One matrix for the whole batch: its gradient is one tall product instead of a sum.
          detail::contribute_product(
              db, {}, op::transposed, x.reshape({x.size() / x.extent(-1), x.extent(-1)}), op::plain,
              upstream.reshape({upstream.size() / upstream.extent(-1), upstream.extent(-1)}), type);
        } else if (db.needed()) {
          detail::contribute_product(db, batch, op::transposed, x, op::plain, upstream, type);
        }
        if (db.needed()) db.done();
        if (da.needed()) {
          detail::contribute_product(da, batch, op::plain, upstream, op::transposed, y, type);
        }
        if (da.later()) left = {};
        if (db.later()) right = {};
      },
      a, b);
}

/// A tensor operand is a constant.
template <typename T>
[[nodiscard]] variable<T> matmul(const variable<T>& a, const tensor<T>& b,
                                 call_site site = call_site::current()) {
  return matmul(a, variable<T>(b), site);
}
template <typename T>
[[nodiscard]] variable<T> matmul(const tensor<T>& a, const variable<T>& b,
                                 call_site site = call_site::current()) {
  return matmul(variable<T>(a), b, site);
}

}  // namespace parx
