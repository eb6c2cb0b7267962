// adamw: Adam with weight decay that does not pass through the moments.
//
//   w *= 1 - lr * weight_decay
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
//
// Loshchilov, Hutter: Decoupled Weight Decay Regularization (arXiv 1711.05101). Source: PyTorch's
// torch.optim.AdamW; t counts the steps of each parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <Eigen/Core>

#include <parx/core/check.hpp>
#include <parx/optim/optimizer.hpp>

namespace parx::optim {

struct adamw_options {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

template <typename T = float>
class adamw : public optimizer<adamw<T>, T, adamw_options> {
  using base = optimizer<adamw<T>, T, adamw_options>;

 public:
  static constexpr std::array<std::string_view, 2> state_names{"exp_avg", "exp_avg_sq"};

  /// For `model.parameters()`. Throws usage_error when there are none, or for options outside their
  /// range.
  explicit adamw(const std::vector<parameter<T>>& parameters, adamw_options options = {})
      : adamw(targets_of(parameters), options) {}
  explicit adamw(std::vector<target<T>> targets, adamw_options options = {})
      : base(std::move(targets), options) {
    require(options.lr >= 0 && options.epsilon >= 0 && options.weight_decay >= 0,
            "adamw: lr {}, epsilon {} and weight_decay {} must not be negative", options.lr,
            options.epsilon, options.weight_decay);
    require(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1,
            "adamw: beta1 {} and beta2 {} must be in [0, 1)", options.beta1, options.beta2);
  }

 private:
  friend base;

  void update(typename base::slot& updated, std::span<T> value, std::span<const T> grad) {
    const adamw_options& o = this->options();
    const auto t = static_cast<double>(updated.steps);
    const T keep = static_cast<T>(1 - o.lr * o.weight_decay);
    const T beta1 = static_cast<T>(o.beta1);
    const T beta2 = static_cast<T>(o.beta2);
    const T rest1 = static_cast<T>(1 - o.beta1);
    const T rest2 = static_cast<T>(1 - o.beta2);
    const T step_size = static_cast<T>(o.lr / (1 - std::pow(o.beta1, t)));
    const T root_scale = static_cast<T>(1 / std::sqrt(1 - std::pow(o.beta2, t)));
    const T epsilon = static_cast<T>(o.epsilon);
    auto& state = this->make_state(updated);
    // Eigen, because compilers do not vectorise std::sqrt while it may set errno. Pieces, so that
    // the three passes over a piece find it in the first-level cache.
    using array = Eigen::Array<T, Eigen::Dynamic, 1>;
    constexpr std::size_t piece = 1024;
    for (std::size_t begin = 0; begin < value.size(); begin += piece) {
      const auto count = static_cast<Eigen::Index>(std::min(piece, value.size() - begin));
      Eigen::Map<array> w(value.data() + begin, count);
      const Eigen::Map<const array> g(grad.data() + begin, count);
      Eigen::Map<array> m(state[0].data() + begin, count);
      Eigen::Map<array> v(state[1].data() + begin, count);
      m = beta1 * m + rest1 * g;
      v = beta2 * v + rest2 * g * g;
      w = keep * w - step_size * m / (v.sqrt() * root_scale + epsilon);
    }
  }
};

}  // namespace parx::optim
