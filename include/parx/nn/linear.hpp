// linear: y = f(x W^T + b) over the last axis, f being an activation function or nothing.
//
// As with the other layers, T is what the parameters are held in: of linear<bfloat16>, input and
// result are float.
#pragma once

#include <cstddef>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/linear.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

enum class bias { learned, none };

struct linear_options {
  nn::bias bias = nn::bias::learned;
  initializer start = {};  ///< of the weight, the bias then starts from 0; keep: PyTorch's of both
  parx::activation activation = parx::activation::none;  ///< applied on the way: see parx::linear
};

template <typename T = float>
class linear : public module<linear<T>> {
 public:
  using value_type = T;

  /// From `in` to `out` features. weight is (out, in), bias (out), as in PyTorch.
  linear(std::size_t in, std::size_t out, linear_options options = {})
      : activation_(options.activation),
        start_(options.start.kind == initializer::distribution::keep ? init::fan_in_uniform(in)
                                                                     : options.start),
        bias_start_(options.start.kind == initializer::distribution::keep ? start_
                                                                          : init::constant(0)),
        weight_("weight", {out, in}) {
    if (options.bias == bias::learned) bias_ = parameter<T>("bias", {out});
  }

  /// x is (..., in), the result (..., out). Throws usage_error when x does not fit.
  [[nodiscard]] variable<arithmetic_type<T>> forward(const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    return parx::linear<A>(x, cast<A>(weight_), cast<A>(bias_), activation_);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, start_);
    visit("bias", bias_, bias_start_);
  }

  [[nodiscard]] const parameter<T>& weight() const noexcept { return weight_; }
  /// Not defined() without one.
  [[nodiscard]] const parameter<T>& bias_values() const noexcept { return bias_; }

 private:
  parx::activation activation_;
  initializer start_, bias_start_;
  parameter<T> weight_;
  parameter<T> bias_;
};

}  // namespace parx::nn
