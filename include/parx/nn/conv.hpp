// conv2d, over images (n, channels, rows, columns).
#pragma once

#include <cstddef>

#include <parx/autograd/ops/conv2d.hpp>
#include <parx/nn/linear.hpp>
#include <parx/nn/module.hpp>

namespace parx::nn {

struct conv2d_options {
  std::size_t stride = 1;
  std::size_t padding = 0;  ///< zeros on every side
  nn::bias bias = nn::bias::learned;
};

template <typename T = float>
class conv2d : public module<conv2d<T>> {
 public:
  using value_type = T;

  /// From `in` to `out` channels with kernels of `kernel` x `kernel` pixels. weight is (out, in,
  /// kernel, kernel), bias (out), as in PyTorch.
  conv2d(std::size_t in, std::size_t out, std::size_t kernel, conv2d_options options = {})
      : fan_in_(in * kernel * kernel),
        options_{.stride = options.stride, .padding = options.padding},
        weight_("weight", tensor<T>::zeros({out, in, kernel, kernel})) {
    if (options.bias == bias::learned) bias_ = parameter<T>("bias", tensor<T>::zeros({out}));
  }

  /// See parx::conv2d. Throws usage_error when x does not fit.
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::conv2d<T>(x, weight_, bias_, options_);
  }

  template <typename Visit>
  void members(Visit& visit) {
    visit("weight", weight_, init::fan_in_uniform(fan_in_));
    visit("bias", bias_, init::fan_in_uniform(fan_in_));
  }

  [[nodiscard]] const parameter<T>& weight() const {
    this->require_ready();
    return weight_;
  }
  /// Not defined() without one.
  [[nodiscard]] const parameter<T>& bias_values() const {
    this->require_ready();
    return bias_;
  }

 private:
  std::size_t fan_in_;
  parx::conv2d_options options_;
  parameter<T> weight_;
  parameter<T> bias_;
};

}  // namespace parx::nn
