// swiglu: silu(gate) * up, the middle of Llama's feed-forward layer, in one pass.
//
// Shazeer: GLU Variants Improve Transformer (arXiv 2002.05202).
#pragma once

#include <parx/autograd/function.hpp>
#include <parx/tensor/math.hpp>

namespace parx::inline PARX_ABI {

/// gate * sigmoid(gate) * up, element by element. Throws usage_error when the shapes differ.
template <typename T>
[[nodiscard]] variable<T> swiglu(const variable<T>& gate, const variable<T>& up) {
  require(gate.shape() == up.shape(), "swiglu: a gate of shape {} for values of shape {}",
          to_string(gate.shape()), to_string(up.shape()));
  return differentiable(
      map([](T g, T v) { return g * detail::vector_sigmoid(g) * v; }, gate.value(), up.value()),
      [x = gate.value(), y = up.value()](const tensor<T>& upstream, grad_sink<T> dgate,
                                         grad_sink<T> dup) {
        if (dgate.needed()) {
          dgate.map(
              [](T u, T g, T v) {
                const T s = detail::vector_sigmoid(g);
                return u * v * s * (T(1) + g * (T(1) - s));
              },
              upstream, x, y);
        }
        if (dup.needed()) {
          dup.map([](T u, T g) { return u * g * detail::vector_sigmoid(g); }, upstream, x);
        }
      },
      gate, up);
}

}  // namespace parx
