// linear: y = f(x W^T + b), the product, the bias and an activation function as one operation.
//
// The product is added to the bias, and the activation is applied to each block of rows while it is
// still in the cache. Backward needs one tensor besides the inputs: relu's result, else the
// derivatives of f, which cost little beside its values. It sums the bias's gradient in the same
// pass.
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

/// The rows of a product that are computed at a time: few enough to stay in the cache until they
/// are finished, and not fewer, because each block packs the other operand again.
[[nodiscard]] inline std::size_t rows_of_a_block(std::size_t width) noexcept {
  return std::max<std::size_t>(128, 65536 / std::max<std::size_t>(width, 1));
}

/// For activation_backward, where the derivative itself was saved.
struct saved_slope {
  template <typename V>
  [[gnu::always_inline]] static value_and_slope<V> both(V saved) {
    return {saved, saved};
  }
};

/// Adds rows to a sum (may be null), in blocks, so that rounding errors of many rows do not
/// accumulate.
template <typename T>
class row_sum_by_blocks {
 public:
  row_sum_by_blocks(std::size_t width, T* sum)
      : width_(width), sum_(sum), partial_(tensor<T>::zeros({sum != nullptr ? width : 0})) {}

  void add(const T* row) {
    if (sum_ == nullptr) return;
    T* __restrict const partial = partial_.data();
    for (std::size_t i = 0; i < width_; ++i) partial[i] += row[i];
    if (++rows_ == 64) end_block();
  }
  /// After the last row.
  void end_block() {
    T* const partial = partial_.data();
    for (std::size_t i = 0; sum_ != nullptr && i < width_; ++i) {
      sum_[i] += std::exchange(partial[i], T(0));
    }
    rows_ = 0;
  }

 private:
  std::size_t width_;
  T* sum_;
  tensor<T> partial_;
  std::size_t rows_ = 0;
};

/// dz = upstream f'(saved), and the sum of its rows into bias_sum (may be null).
template <typename Function, typename T>
void activation_backward(std::size_t rows, std::size_t width, const T* upstream, const T* saved,
                         T* dz, T* bias_sum) {
  row_sum_by_blocks<T> sum(width, bias_sum);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * width;
    multiply_by_slope<Function>(width, upstream + at, saved + at, dz + at);
    sum.add(dz + at);
  }
  sum.end_block();
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

/// y = f(x W^T + b): x is (..., in), the weight (out, in) unless `layout` says otherwise, the bias
/// (out) or not defined(), f element by element. Throws usage_error naming the shapes that do not
/// fit. Backward computes the weight's gradient before the input's, so that it can be sent to other
/// ranks early; with a `reduction` after it.
template <typename T>
[[nodiscard]] variable<T> linear(const variable<T>& x, const variable<T>& weight,
                                 const variable<T>& bias = {}, activation f = activation::none,
                                 weight_layout layout = weight_layout::out_in,
                                 std::shared_ptr<std::type_identity_t<input_gradient_reduction<T>>>
                                     reduction = {}) {
  const bool transposed = layout == weight_layout::out_in;
  if (weight.rank() != 2 || x.rank() < 1 || x.extent(-1) != weight.extent(transposed ? 1 : 0))
      [[unlikely]] {
    throw_usage(
        "linear{}: input of shape {} and weight of shape {} do not fit: the last axis of the input "
        "and the {} of the weight must be equal{}",
        detail::quoted_name(weight), to_string(x.shape()), to_string(weight.shape()),
        transposed ? "last" : "first",
        detail::why_cut_weights_do_not_fit(x, weight, transposed ? 1 : 0));
  }
  const std::size_t out = weight.extent(transposed ? 0 : 1);
  const std::size_t in = weight.extent(transposed ? 1 : 0);
  const std::size_t ld = weight.extent(1);
  if (bias.defined() && bias.shape() != shape{out}) [[unlikely]] {
    throw_usage("linear{}: a bias of shape {} does not fit a weight of shape {}",
                detail::quoted_name(weight), to_string(bias.shape()), to_string(weight.shape()));
  }
  const detail::product_operand<T> left(x), right(weight);
  const tensor<T> input = left.values().contiguous();
  const tensor<T> w = right.values().contiguous();
  const tensor<T> b = bias.defined() ? bias.value().contiguous() : tensor<T>();
  const std::size_t rows = input.size() / std::max<std::size_t>(in, 1);
  shape s = x.shape();
  s[s.rank() - 1] = out;
  tensor<T> y = tensor<T>::empty(s);
  // Autocast rounds the activation's input, and keeps that in 16 bits.
  const bool rounds = detail::autocasting<T>();
  const bool in_place = f == activation::none || f == activation::relu || !records(x, weight, bias);
  const bool derives = !in_place && !rounds;
  const tensor<T> z = in_place ? y : tensor<T>::empty(s);
  const auto activate = [&](std::size_t first, std::size_t count) {
    detail::with_activation<T>(f, [&]<typename Function>(Function) {
      T* const to = y.data() + first * out;
      if (derives) {
        detail::activate_and_derive<Function>(count * out, z.data() + first * out, to);
      } else {
        detail::activate_values<Function>(count * out, to, to);
      }
    });
  };
  const std::size_t block = detail::rows_of_a_block(out);
  for (std::size_t first = 0; first < rows; first += block) {
    const std::size_t count = std::min(block, rows - first);
    gemm(op::plain, transposed ? op::transposed : op::plain, count, out, in, T(1),
         input.data() + first * in, in, w.data(), ld, T(0), z.data() + first * out, out, b.data());
    if (f != activation::none && !rounds) activate(first, count);
  }
  if (rounds) {
    detail::round_result(z);
    if (!in_place) y.copy_from(z);
    if (f != activation::none) activate(0, rows);
  }
  const detail::saved<T> before = f == activation::none ? detail::saved<T>() : detail::saved<T>(z);
  return differentiable(
      std::move(y),
      [=, left = left.kept(), right = right.kept(), before = before,
       is_derived = f == activation::none, type = detail::autocast_type(),
       reduction = std::move(reduction)](const tensor<T>& upstream, grad_sink<T> dx,
                                         grad_sink<T> dw, grad_sink<T> db) mutable {
        tensor<T> dz = upstream;  // in a second half already the gradient of the product
        if (!is_derived) {
          const tensor<T> kept = before.values();
          dz = tensor<T>::empty(upstream.shape());
          T* const bias_sum = db.needed() ? db.zeroed().data() : nullptr;
          const auto derive = [&]<typename Function>(Function) {
            detail::activation_backward<Function>(rows, out, upstream.data(), kept.data(),
                                                  dz.data(), bias_sum);
          };
          if (derives) {
            derive(detail::saved_slope{});
          } else {
            detail::with_activation<T>(f, derive);
          }
        } else if (db.needed() && f != activation::none) {
          detail::row_sum_by_blocks<T> sum(out, db.zeroed().data());
          for (std::size_t row = 0; row < rows; ++row) sum.add(dz.data() + row * out);
          sum.end_block();
        } else if (db.needed()) {
          const auto target = db.memory();
          sum_into(upstream.reshape({rows, out}), target.values,
                   target.add ? accumulate::add : accumulate::overwrite);
        }
        if (db.needed()) db.done();
        const tensor<T> operand = detail::rounded(dz, type);
        const T* const u = operand.data();
        const auto to_input = [&](const detail::gradient_memory<T>& target) {
          const tensor<T> kept = right.values().contiguous();
          const std::size_t step = detail::rows_of_a_block(in);
          for (std::size_t first = 0; first < rows; first += step) {
            gemm(op::plain, transposed ? op::plain : op::transposed, std::min(step, rows - first),
                 in, out, T(1), u + first * out, out, kept.data(), ld, target.beta(),
                 target.values.data() + first * in, in);
          }
        };
        const bool is_reduced = reduction != nullptr && dx.needed();
        const tensor<T> partial = is_reduced ? tensor<T>::empty(dx.shape()) : tensor<T>();
        if (is_reduced) {
          to_input({partial, false});
          reduction->start(partial);
        }
        if (dw.needed()) {
          const auto target = dw.memory();
          const tensor<T> kept = left.values().contiguous();
          if (transposed) {
            gemm(op::transposed, op::plain, out, in, rows, T(1), u, out, kept.data(), in,
                 target.beta(), target.values.data(), in);
          } else {
            gemm(op::transposed, op::plain, in, out, rows, T(1), kept.data(), in, u, out,
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
