// linear_cross_entropy: cross_entropy(linear(x, weight, bias), labels) without the whole logits.
//
// With a vocabulary of 50257 words, the logits of 4096 tokens and their gradient take 1.6 GB. Here
// they exist for 256 rows at a time, 51 MB. Forward keeps none: backward computes them again (1.5
// times the time of the two operations), in two halves each half does, so that the weight's
// gradient needs no memory besides its own.
//
// Loss and gradients have the bits of the two operations: a row's logits do not depend on how many
// rows there are, and the weight's gradient adds blocks of 256 rows, of bfloat16 of 512, which are
// those of the stated order of a product (tensor/gemm/summation_order.hpp, bf16_order.hpp), one
// after the other. Source: PyTorch's torch.nn.functional.linear_cross_entropy. Hsu et al.: Liger
// Kernel (arXiv 2410.10989).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include <parx/autograd/detail/saved.hpp>
#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/cut_weights.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/autograd/ops/loss.hpp>
#include <parx/tensor/gemm/bf16_order.hpp>
#include <parx/tensor/gemm/summation_order.hpp>
#include <parx/tensor/matmul.hpp>

namespace parx::inline PARX_ABI {

/// Throws usage_error where this rank has only some classes of the weight.
template <typename T>
void refuse_cut_classes(const variable<T>& weight, call_site site) {
  if (const auto* const cut = detail::as_cut_weight<T>(weight.node().get())) [[unlikely]] {
    throw_usage(
        "linear_cross_entropy at {}: this rank would compute the loss of some classes only, "
        "because \"{}\" is cut to {}. Let the model return the logits, and take "
        "cross_entropy(logits, labels)",
        site, cut->name, cut->spec.text());
  }
}

namespace detail {

/// The logits of some rows at a time, and what becomes of them.
template <typename T, std::integral Label>
class linear_losses {
 public:
  linear_losses(const variable<T>& x, const variable<T>& weight, const variable<T>& bias,
                weight_layout layout, labelled_rows<T, Label> rows)
      : rows_(std::move(rows)), in_(x.extent(-1)), out_(rows_.classes()), ld_(weight.extent(1)),
        weight_(layout == weight_layout::out_in ? op::transposed : op::plain),
        bias_(bias.defined() ? bias.value().contiguous() : tensor<T>()), type_(autocast_type()) {}

  [[nodiscard]] summed_loss forward(const product_tensor<T>& x, const product_tensor<T>& w) const {
    std::vector<summed_loss> losses(rows_.size());
    const tensor<T> logits = memory();
    for (std::size_t first = 0; first < rows_.size(); first += block_) {
      multiply(x, w, first, logits);
      for_each_row(count(first), out_, [&](std::size_t r) {
        T* const y = logits.data() + r * out_;
        losses[first + r] = rows_.loss_of(first + r, y, y, row_result::loss);
      });
    }
    return ordered_reduce<summed_loss>(
        rows_.size(), rows_of_a_block(out_), [&](std::size_t row, std::size_t last) {
          summed_loss sum;
          for (; row < last; ++row) sum += losses[row];
          return sum;
        });
  }

  void backward(const product_tensor<T>& x, const product_tensor<T>& w, T upstream, grad_sink<T> dx,
                grad_sink<T> dw, grad_sink<T> db) const {
    using target = gradient_memory<T>;
    const target to_x = dx.needed() ? dx.memory() : target{};
    target to_w = dw.needed() ? dw.memory() : target{};
    target to_b = db.needed() ? db.memory() : target{};
    const tensor<T> gradient = memory();
    // Once even without rows: the gradient of the weight is then zero.
    for (std::size_t first = 0; first == 0 || first < rows_.size(); first += block_) {
      const std::size_t n = count(first);
      multiply(x, w, first, gradient);
      for_each_row(n, out_, [&](std::size_t r) {
        T* const g = gradient.data() + r * out_;
        rows_.loss_of(first + r, g, g, row_result::loss_and_gradient);
        for (std::size_t i = 0; upstream != T(1) && i < out_; ++i) g[i] *= upstream;
      });
      if (db.needed()) {
        sum_into(gradient.slice(0, 0, n), to_b.values,
                 std::exchange(to_b.add, true) ? accumulate::add : accumulate::overwrite);
      }
      if (type_ != dtype::bfloat16) round(gradient, n);
      const T* const u = gradient.data();
      const operand_values<T> input = x.data() + first * in_;
      if (dw.needed()) {
        const T beta = to_w.beta();
        T* const sum = to_w.values.data();
        if (weight_ == op::transposed) {
          gemm(type_, op::transposed, op::plain, out_, in_, n, T(1), u, out_, input, in_, beta, sum,
               in_);
        } else {
          gemm(type_, op::transposed, op::plain, in_, out_, n, T(1), input, in_, u, out_, beta, sum,
               out_);
        }
        to_w.add = true;
      }
      if (dx.needed()) {
        gemm(type_, op::plain, weight_ == op::transposed ? op::plain : op::transposed, n, in_, out_,
             T(1), u, out_, w.data(), ld_, to_x.beta(), to_x.values.data() + first * in_, in_);
      }
    }
  }

  /// Keeps the row weights of the caller beyond its call.
  void keep(const tensor<float>& row_weights) {
    kept_weights_ = row_weights;
    rows_.set_row_weights(kept_weights_.span());
  }

 private:
  [[nodiscard]] std::size_t count(std::size_t first) const noexcept {
    return std::min(block_, rows_.size() - first);
  }
  [[nodiscard]] tensor<T> memory() const { return tensor<T>::empty({count(0), out_}); }
  void multiply(const product_tensor<T>& x, const product_tensor<T>& w, std::size_t first,
                const tensor<T>& y) const {
    gemm(type_, op::plain, weight_, count(first), out_, in_, T(1), x.data() + first * in_, in_,
         w.data(), ld_, T(0), y.data(), out_, bias_.data());
    round(y, count(first));
  }
  /// As linear() does with its result and its upstream gradient under autocast.
  void round([[maybe_unused]] const tensor<T>& y, [[maybe_unused]] std::size_t n) const {
    if constexpr (std::is_same_v<T, float>) {
      if (type_ != dtype::float32) round_values(y.data(), y.data(), n * out_, type_);
    }
  }

  labelled_rows<T, Label> rows_;
  tensor<float> kept_weights_;
  std::size_t in_, out_, ld_;
  op weight_;
  tensor<T> bias_;
  dtype type_;
  /// Of a product's sum over the rows: see above.
  std::size_t block_ = type_ == dtype::bfloat16 ? product::bf16_block : product::block_k;
};

}  // namespace detail

/// The loss of linear(x, weight, bias) as by cross_entropy: x is (..., in), labels (...); weight,
/// bias (may be undefined) and `layout` as in linear(). Memory: see above. Labels must not be
/// written before backward. Throws usage_error as linear() and cross_entropy() do, for a weight of
/// which this rank has only some classes, and for one that is x itself.
template <typename T, std::integral Label>
[[nodiscard]] weighted_loss<T> linear_cross_entropy(
    const variable<T>& x, const variable<T>& weight,
    const std::type_identity_t<variable<T>>& bias, const tensor<Label>& labels,
    const cross_entropy_options& options = {}, weight_layout layout = weight_layout::out_in,
    call_site site = call_site::current()) {
  const auto sizes = detail::linear_sizes::of(x, weight, bias, layout);
  refuse_cut_classes(weight, site);
  require(labels.rank() + 1 == x.rank() && labels.size() * sizes.in == x.size(),
          "linear_cross_entropy at {}: an input of shape {} needs labels of the same shape without "
          "the last axis, not {}",
          site, to_string(x.shape()), to_string(labels.shape()));
  require(!x.node() || x.node().get() != weight.node().get(),
          "linear_cross_entropy at {}: the input and the weight are one variable", site);
  detail::linear_losses<T, Label> losses(
      x, weight, bias, layout,
      {"linear_cross_entropy", site, labels, sizes.out, options});
  const detail::product_operand<T> left(x, detail::products_by::gemm),
      right(weight, detail::products_by::gemm);
  const detail::summed_loss all = losses.forward(left.operand(), right.operand());
  if (!options.row_weights.empty() && records(x, weight, bias)) {
    losses.keep(tensor<float>::from(options.row_weights, {options.row_weights.size()}));
  }
  variable<T> sum = differentiable(
      tensor<T>::scalar(static_cast<T>(all.total)),
      [losses = std::move(losses), left = left.kept(), right = right.kept()](
          const tensor<T>& upstream, grad_sink<T> dx, grad_sink<T> dw, grad_sink<T> db) {
        losses.backward(left.operand(), right.operand(), upstream.item(), dx, dw, db);
      },
      x, weight, bias);
  return {std::move(sum), all.count};
}

}  // namespace parx
