// relu, gelu, silu, tanh, sigmoid and flatten as modules, for sequential.
#pragma once

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/nn/module.hpp>

namespace parx::inline PARX_ABI::nn {

class relu : public module<relu> {
 public:
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::relu(x);
  }
};

/// parx::gelu as a layer.
class gelu : public module<gelu> {
 public:
  explicit gelu(gelu_form form = gelu_form::erf) : form_(form) {}
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::gelu(x, form_);
  }
  template <typename Visit>
  void members(Visit& /*visit*/) {}  // nothing in it is trained

 private:
  gelu_form form_;
};

/// parx::silu as a layer.
class silu : public module<silu> {
 public:
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::silu(x);
  }
};

/// parx::tanh as a layer.
class tanh : public module<tanh> {
 public:
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::tanh(x);
  }
};

/// parx::sigmoid as a layer.
class sigmoid : public module<sigmoid> {
 public:
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::sigmoid(x);
  }
};

/// Joins all axes but the first: (n, channels, rows, columns) becomes (n, channels * rows *
/// columns).
class flatten : public module<flatten> {
 public:
  template <typename T>
  [[nodiscard]] variable<T> forward(const variable<T>& x) const {
    return parx::flatten(x, 1);
  }
};

}  // namespace parx::nn
