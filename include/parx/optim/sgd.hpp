// sgd: stochastic gradient descent with momentum, Nesterov's variant and weight decay.
//
//   g = grad + weight_decay * w;  v = momentum * v + g;  w -= lr * (nesterov ? g + momentum * v :
//   v)
//
// Source: PyTorch's torch.optim.SGD, without dampening.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <parx/core/check.hpp>
#include <parx/optim/optimizer.hpp>

namespace parx::optim {

enum class momentum_form { classical, nesterov };

struct sgd_options {
  double lr = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  momentum_form form = momentum_form::classical;
};

template <typename T = float>
class sgd : public optimizer<sgd<T>, T, sgd_options> {
  using base = optimizer<sgd<T>, T, sgd_options>;

 public:
  static constexpr std::array<std::string_view, 1> state_names{"momentum_buffer"};

  /// For `model.parameters()`. Throws usage_error when there are none, or for options outside their
  /// range.
  explicit sgd(const std::vector<parameter<T>>& parameters, sgd_options options = {})
      : sgd(targets_of(parameters), options) {}
  explicit sgd(std::vector<target<T>> targets, sgd_options options = {})
      : base(std::move(targets), options) {
    require(options.lr >= 0 && options.momentum >= 0 && options.weight_decay >= 0,
            "sgd: lr {}, momentum {} and weight_decay {} must not be negative", options.lr,
            options.momentum, options.weight_decay);
    require(options.form == momentum_form::classical || options.momentum > 0,
            "sgd: Nesterov's form needs a momentum above 0");
  }

 private:
  friend base;

  void update(typename base::slot& updated, std::span<T> value, std::span<const T> grad) {
    const sgd_options& o = this->options();
    const T lr = static_cast<T>(o.lr);
    const T decay = static_cast<T>(o.weight_decay);
    const T momentum = static_cast<T>(o.momentum);
    T* __restrict const w = value.data();
    const T* __restrict const g = grad.data();
    const std::size_t count = value.size();
    if (o.momentum == 0) {
      for (std::size_t i = 0; i < count; ++i) w[i] -= lr * (g[i] + decay * w[i]);
      return;
    }
    T* __restrict const v = this->make_state(updated)[0].data();
    if (o.form == momentum_form::nesterov) {
      for (std::size_t i = 0; i < count; ++i) {
        const T d = g[i] + decay * w[i];
        v[i] = momentum * v[i] + d;
        w[i] -= lr * (d + momentum * v[i]);
      }
    } else {
      for (std::size_t i = 0; i < count; ++i) {
        v[i] = momentum * v[i] + (g[i] + decay * w[i]);
        w[i] -= lr * v[i];
      }
    }
  }
};

}  // namespace parx::optim
