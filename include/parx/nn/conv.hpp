// conv2d, over images (n, channels, rows, columns).
#pragma once

#include <cstddef>

#include <parx/autograd/ops/cast.hpp>
#include <parx/autograd/ops/conv2d.hpp>
#include <parx/core/check.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/module.hpp>
#include <parx/types/half.hpp>

namespace parx::inline PARX_ABI::nn {

struct conv2d_options {
  std::size_t stride = 1;
  std::size_t padding = 0;   ///< zeros on every side
  std::size_t dilation = 1;  ///< pixels from one row or column of the kernel to the next
  std::size_t groups = 1;    ///< groups of channels that are convolved separately
  nn::bias bias = nn::bias::learned;
  parx::activation activation = parx::activation::none;  ///< fused: see parx::conv2d
};

template <typename T = float>
class conv2d : public module<conv2d<T>> {
 public:
  using value_type = T;

  /// From `in` to `out` channels with kernels of `kernel` x `kernel` pixels. weight is (out,
  /// in / groups, kernel, kernel), bias (out), as in PyTorch. Throws usage_error unless the groups
  /// divide both.
  conv2d(std::size_t in, std::size_t out, std::size_t kernel, conv2d_options options = {})
      : fan_in_(channels_of_group(in, out, options.groups) * kernel * kernel),
        options_{.stride = options.stride,
                 .padding = options.padding,
                 .dilation = options.dilation,
                 .groups = options.groups,
                 .activation = options.activation},
        weight_("weight", {out, in / options.groups, kernel, kernel}) {
    if (options.bias == bias::learned) {
      bias_ = parameter<T>("bias", {out});
      bias_.exempt_from_decay();
    }
  }

  /// See parx::conv2d. Throws usage_error when x does not fit.
  [[nodiscard]] variable<arithmetic_type<T>> forward(const variable<arithmetic_type<T>>& x) const {
    using A = arithmetic_type<T>;
    return parx::conv2d<A>(x, cast<A>(weight_), cast<A>(bias_), options_);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::fan_in_uniform(fan_in_));
    visit("bias", bias_, init::fan_in_uniform(fan_in_));
  }

  [[nodiscard]] const parameter<T>& weight() const noexcept { return weight_; }
  /// Not defined() without one.
  [[nodiscard]] const parameter<T>& bias_values() const noexcept { return bias_; }

 private:
  [[nodiscard]] static std::size_t channels_of_group(std::size_t in, std::size_t out,
                                                     std::size_t groups) {
    require(groups > 0 && in % groups == 0 && out % groups == 0,
            "conv2d: {} input and {} output channels cannot be cut into {} groups", in, out,
            groups);
    return in / groups;
  }

  std::size_t fan_in_;
  parx::conv2d_options options_;
  parameter<T> weight_;
  parameter<T> bias_;
};

}  // namespace parx::nn
