// linear: y = f(x W^T + b), the product, the bias and an activation function as one operation.
//
// The product is added to the bias, and the activation is applied to each part of the result while
// it is in the cache. Backward needs one tensor besides the inputs: relu's result, else the
// derivatives of f, which cost little beside its values. It sums the bias's gradient in the pass
// that multiplies by them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/autograd/ops/detail/cut_weights.hpp>
#include <parx/autograd/ops/detail/linear_passes.hpp>
#include <parx/core/source.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

namespace detail {

/// ` "blocks.0.weight"` for a parameter that its model has named; "" for other variables.
template <typename T>
[[nodiscard]] std::string quoted_name(const variable<T>& v) {
  if (!v.is_leaf()) return "";
  const std::string& name = static_cast<const leaf<T>&>(*v.node()).name;
  return name.empty() ? "" : formatted(" \"{}\"", name);
}

}  // namespace detail

/// Reduces the gradient of linear()'s input: for tensor parallelism, where a rank has some columns
/// of the result and the gradient is the sum over all ranks. The input's gradient is then computed
/// first, and the weight's during the reduction.
template <typename T>
class input_gradient_reduction {
 public:
  virtual ~input_gradient_reduction() = default;
  /// `gradient` is this rank's and contiguous. May return before it is summed; then it keeps the
  /// tensor until finish(), or until its destruction where the rest of backward fails.
  virtual void start(const tensor<T>& gradient) = 0;
  /// Blocks until `gradient` is the sum.
  virtual void finish() = 0;
};

/// How the weight of a product is stored.
enum class weight_layout {
  out_in,  ///< as PyTorch's Linear stores it
  in_out,  ///< as GPT-2's Conv1D does
};

namespace detail {

/// The numbers of inputs and outputs of a linear operation.
struct linear_sizes {
  std::size_t in, out;

  /// Throws usage_error naming the shapes that do not fit.
  template <typename T>
  [[nodiscard]] static linear_sizes of(const variable<T>& x, const variable<T>& weight,
                                       const variable<T>& bias, weight_layout layout) {
    const bool transposed = layout == weight_layout::out_in;
    if (weight.rank() != 2 || x.rank() < 1 || x.extent(-1) != weight.extent(transposed ? 1 : 0))
        [[unlikely]] {
      throw_usage(
          "linear{}: input of shape {} and weight of shape {} do not fit: the last axis of the "
          "input and the {} of the weight must be equal{}",
          quoted_name(weight), to_string(x.shape()), to_string(weight.shape()),
          transposed ? "last" : "first", why_cut_weights_do_not_fit(x, weight, transposed ? 1 : 0));
    }
    const std::size_t out = weight.extent(transposed ? 0 : 1);
    if (bias.defined() && bias.shape() != shape{out}) [[unlikely]] {
      throw_usage("linear{}: a bias of shape {} does not fit a weight of shape {}",
                  quoted_name(weight), to_string(bias.shape()), to_string(weight.shape()));
    }
    return {x.extent(-1), out};
  }
};

}  // namespace detail

/// y = f(x W^T + b): x is (..., in), the weight (out, in) unless `layout` says otherwise, the bias
/// (out) or not defined(), f element by element. Throws usage_error naming the shapes that do not
/// fit. Backward computes the weight's gradient before the input's, so that it can be sent to other
/// ranks early; with a `reduction` after it.
template <typename T>
[[nodiscard]] variable<T> linear(
    const variable<T>& x, const variable<T>& weight, const variable<T>& bias = {},
    activation f = activation::none, weight_layout layout = weight_layout::out_in,
    std::shared_ptr<std::type_identity_t<input_gradient_reduction<T>>> reduction = {},
    call_site = call_site::current()) {
  const auto sizes = detail::linear_sizes::of(x, weight, bias, layout);
  const std::size_t in = sizes.in, out = sizes.out;
  const bool transposed = layout == weight_layout::out_in;
  const std::size_t ld = weight.extent(1);
  const detail::product_operand<T> left(x, detail::products_by::gemm),
      right(weight, detail::products_by::gemm);
  const detail::product_tensor<T> input = left.operand(), w = right.operand();
  const tensor<T> b = bias.defined() ? bias.value().contiguous() : tensor<T>();
  const std::size_t rows = x.size() / std::max<std::size_t>(in, 1);
  shape s = x.shape();
  s[s.rank() - 1] = out;
  tensor<T> y = tensor<T>::empty(s);
  // Autocast rounds the activation's arguments, and keeps them in 16 bits.
  const bool rounds = detail::autocasting<T>();
  using detail::kept_values;
  const kept_values keeps =
      f == activation::none || f == activation::relu || !records(x, weight, bias)
          ? kept_values::none
      : rounds ? kept_values::arguments
               : kept_values::derivatives;
  const detail::activation_memory<T> memory(keeps, s, detail::autocast_type());
  const auto multiply = [&](product_finish<T> finish) {
    gemm(detail::autocast_type(), op::plain, transposed ? op::transposed : op::plain, rows, out, in,
         T(1), input.data(), in, w.data(), ld, T(0), y.data(), out, b.data(), finish);
  };
  if (f == activation::none && !rounds) {
    multiply({});
  } else {
    const dtype type = detail::autocast_type();
    detail::with_activation<T>(f, [&multiply, &memory, type]<typename Function>(Function) {
      multiply([&](const result_tile<T>& part) {
        detail::activate_part<Function>(part, memory, type);
      });
    });
  }
  const detail::saved<T> before = f == activation::none        ? detail::saved<T>()
                                  : keeps == kept_values::none ? detail::saved<T>(y)
                                                               : memory.kept();
  return differentiable(
      std::move(y),
      [=, left = left.kept(), right = right.kept(), before = before,
       is_derived = f == activation::none, type = detail::autocast_type(),
       reduction = std::move(reduction)](const tensor<T>& upstream, grad_sink<T> dx,
                                         grad_sink<T> dw, grad_sink<T> db) mutable {
        tensor<T> dz = upstream;  // in a second half already the gradient of the product
        if (!is_derived) {
          dz = tensor<T>::empty(upstream.shape());
          T* const bias_sum = db.needed() ? db.zeroed().data() : nullptr;
          const auto derive = [&]<typename Function>(Function) {
            detail::activation_backward<Function>(rows, out, upstream.data(), before, dz.data(),
                                                  bias_sum);
          };
          if (keeps == kept_values::derivatives) {
            derive(detail::saved_slope{});
          } else {
            detail::with_activation<T>(f, derive);
          }
        } else if (db.needed() && f != activation::none) {
          detail::sum_rows(rows, out, db.zeroed().data(),
                           [&](std::size_t row) { return dz.data() + row * out; });
        } else if (db.needed()) {
          const auto target = db.memory();
          sum_into(upstream.reshape({rows, out}), target.values,
                   target.add ? accumulate::add : accumulate::overwrite);
        }
        if (db.needed()) db.done();
        const tensor<T> operand = detail::rounded_for_gemm(dz, type);
        const T* const u = operand.data();
        const auto to_input = [&](const detail::gradient_memory<T>& target) {
          const detail::product_tensor<T> kept = right.operand();
          gemm(type, op::plain, transposed ? op::plain : op::transposed, rows, in, out, T(1), u,
               out, kept.data(), ld, target.beta(), target.values.data(), in);
        };
        const bool is_reduced = reduction != nullptr && dx.needed();
        const tensor<T> partial = is_reduced ? tensor<T>::empty(dx.shape()) : tensor<T>();
        if (is_reduced) {
          to_input({partial, false});
          reduction->start(partial);
        }
        if (dw.needed()) {
          const auto target = dw.memory();
          const detail::product_tensor<T> kept = left.operand();
          if (transposed) {
            gemm(type, op::transposed, op::plain, out, in, rows, T(1), u, out, kept.data(), in,
                 target.beta(), target.values.data(), in);
          } else {
            gemm(type, op::transposed, op::plain, in, out, rows, T(1), kept.data(), in, u, out,
                 target.beta(), target.values.data(), out);
          }
          dw.done();
        }
        if (is_reduced) {
          reduction->finish();
          dx.add(partial);
        } else if (dx.needed()) {
          to_input(dx.memory());
        }
        if (dx.later() || dw.later() || db.later()) {
          is_derived = true;
          before = {};
          if (!dw.later()) left = {};
          if (!dx.later()) right = {};
        }
        return dz;
      },
      x, weight, bias);
}

}  // namespace parx
