// linear: y = f(x W^T + b) over the last axis, f being an activation function or nothing.
//
// As with the other layers, T is the parameters' type: the input and result of linear<bfloat16> are
// float.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/nn/cut.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

/// Whether a layer adds a learned vector.
enum class bias { learned, none };

struct linear_options {
  nn::bias bias = nn::bias::learned;
  initializer start = {};  ///< of the weight, with a bias of 0; keep: PyTorch's default for both
  parx::activation activation = parx::activation::none;  ///< fused: see parx::linear
  matrix_cut::input input = matrix_cut::input::of_this_layer;  ///< see enter()
  weight_layout layout = weight_layout::out_in;
};

template <typename T = float>
class linear : public module<linear<T>>, public cuttable_layer {
 public:
  using value_type = T;

  /// From `in` to `out` features. weight is (out, in), as in PyTorch, or in the layout of the
  /// options; bias is (out).
  linear(std::size_t in, std::size_t out, linear_options options = {})
      : activation_(options.activation),
        input_(options.input),
        layout_(options.layout),
        start_(options.start.kind == initializer::distribution::keep ? init::fan_in_uniform(in)
                                                                     : options.start),
        bias_start_(options.start.kind == initializer::distribution::keep ? start_
                                                                          : init::constant(0)),
        weight_("weight", layout_ == weight_layout::out_in ? shape{out, in} : shape{in, out}) {
    if (options.bias == bias::learned) {
      bias_ = parameter<T>("bias", {out});
      bias_.exempt_from_decay();
    }
  }

  /// x is (..., in), the result (..., out). Throws usage_error when x does not fit.
  [[nodiscard]] variable<arithmetic_type<T>> forward(const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    return cut_.apply<A>(x, cast<A>(weight_), cast<A>(bias_), activation_, layout_, input_);
  }
  /// For an input that several layers read: does once what each of them would do where they are cut
  /// by columns. The others have matrix_cut::input::entered.
  template <typename A>
  [[nodiscard]] variable<A> enter(const variable<A>& x) const {
    return cut_.enter(x);
  }

  [[nodiscard]] layer_piece part_on(const cut_place& where, const layer_cut& how,
                                   std::string_view path) const override {
    require(how.how != cut::rows || activation_ == parx::activation::none,
            "\"{}\" applies an activation, which must follow the sum over the ranks: it cannot be "
            "cut by rows",
            path);
    layer_cut counted = how;
    if (input_ == matrix_cut::input::entered) counted.inputs = 0;
    return cut_.part(where, counted, path, weight_, bias_, layout_).named("weight", "bias");
  }
  void shard_over(const std::shared_ptr<rank_axis>& axis, const layer_cut& how,
                  std::string_view path) override {
    cut_.cut(axis, how, path, weight_, bias_, layout_);
  }
  void make_whole() override { cut_ = {}; }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, start_);
    visit("bias", bias_, bias_start_);
  }

  [[nodiscard]] const parameter<T>& weight() const noexcept { return weight_; }
  /// Not defined() without one.
  [[nodiscard]] const parameter<T>& bias_values() const noexcept { return bias_; }
  [[nodiscard]] parx::activation activation() const noexcept { return activation_; }
  [[nodiscard]] weight_layout layout() const noexcept { return layout_; }

 private:
  parx::activation activation_;
  matrix_cut::input input_;
  weight_layout layout_;
  matrix_cut cut_;
  initializer start_, bias_start_;
  parameter<T> weight_;
  parameter<T> bias_;
};

}  // namespace parx::nn
