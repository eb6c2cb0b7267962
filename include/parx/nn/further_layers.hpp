// conv1d, conv_transpose2d, group_norm, and apply: any function of a variable as a layer, such as
// upsample, a pool or an activation, for sequential.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/conv_transpose.hpp>
#include <parx/autograd/ops/upsample.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/conv.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

/// Over sequences (n, channels, length): see parx::conv1d. weight is (out, in / groups, kernel).
template <typename T = float>
class conv1d : public module<conv1d<T>> {
 public:
  using value_type = T;
  using A = arithmetic_type<T>;

  conv1d(std::size_t in, std::size_t out, std::size_t kernel, conv2d_options options = {})
      : fan_in_(in / std::max<std::size_t>(options.groups, 1) * kernel),
        options_{.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups,
                 .activation = options.activation} {
    require(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0,
            "conv1d: {} input and {} output channels cannot be cut into {} groups", in, out,
            options.groups);
    weight_ = parameter<T>("weight", {out, in / options.groups, kernel});
    if (options.bias == bias::none) return;
    bias_ = parameter<T>("bias", {out});
    bias_.exempt_from_decay();
  }
  [[nodiscard]] variable<A> forward(const variable<A>& x) const {
    return parx::conv1d<A>(x, cast<A>(weight_), cast<A>(bias_), options_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::fan_in_uniform(fan_in_));
    visit("bias", bias_, init::fan_in_uniform(fan_in_));
  }

 private:
  std::size_t fan_in_;
  parx::conv2d_options options_;
  parameter<T> weight_, bias_;
};

/// Over images: see parx::conv_transpose2d. weight is (in, out / groups, kernel, kernel).
template <typename T = float>
class conv_transpose2d : public module<conv_transpose2d<T>> {
 public:
  using value_type = T;
  using A = arithmetic_type<T>;

  conv_transpose2d(std::size_t in, std::size_t out, std::size_t kernel,
                   conv_transpose_options options = {}, nn::bias bias = nn::bias::learned)
      : options_(options) {
    require(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0,
            "conv_transpose2d: {} input and {} output channels cannot be cut into {} groups", in,
            out, options.groups);
    fan_in_ = out / options.groups * kernel * kernel;
    weight_ = parameter<T>("weight", {in, out / options.groups, kernel, kernel});
    if (bias == bias::none) return;
    bias_ = parameter<T>("bias", {out});
    bias_.exempt_from_decay();
  }
  [[nodiscard]] variable<A> forward(const variable<A>& x) const {
    return parx::conv_transpose2d<A>(x, cast<A>(weight_), cast<A>(bias_), options_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::fan_in_uniform(fan_in_));
    visit("bias", bias_, init::fan_in_uniform(fan_in_));
  }

 private:
  std::size_t fan_in_ = 1;
  conv_transpose_options options_;
  parameter<T> weight_, bias_;
};

/// Groups of channels normalised: see parx::group_norm. weight starts from 1, bias from 0.
template <typename T = float>
class group_norm : public module<group_norm<T>> {
 public:
  using value_type = T;
  using A = arithmetic_type<T>;

  group_norm(std::size_t groups, std::size_t channels, layer_norm_options options = {})
      : groups_(groups),
        options_(options),
        weight_("weight", {channels}),
        bias_("bias", {channels}) {
    weight_.exempt_from_decay();
    bias_.exempt_from_decay();
  }
  [[nodiscard]] variable<A> forward(const variable<A>& x) const {
    return parx::group_norm<A>(x, groups_, cast<A>(weight_), cast<A>(bias_), options_);
  }
  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::constant(1));
    visit("bias", bias_, init::constant(0));
  }

 private:
  std::size_t groups_;
  layer_norm_options options_;
  parameter<T> weight_, bias_;
};

/// A function of a variable as a layer without parameters:
/// sequential{conv1d{4, 8, 3}, apply{[](const auto& x) { return parx::elu(x); }}}
template <typename Function>
class apply : public module<apply<Function>> {
 public:
  using element_types = types<>;  // it has no values

  explicit apply(Function function) : function_(std::move(function)) {}
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return function_(x);
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

 private:
  Function function_;
};

}  // namespace parx::nn
