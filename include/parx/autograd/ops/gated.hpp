// swiglu: silu(gate) * up, the middle of Llama's feed-forward layer, in one pass.
//
// Shazeer: GLU Variants Improve Transformer (arXiv 2002.05202).
#pragma once

#include <parx/autograd/function.hpp>
#include <parx/autograd/ops/detail/activations.hpp>

namespace parx::inline PARX_ABI {

/// gate * sigmoid(gate) * up, element by element. Throws usage_error when the shapes differ.
template <typename T>
[[nodiscard]] variable<T> swiglu(const variable<T>& gate, const variable<T>& up,
                                 call_site = call_site::current()) {
  require(gate.shape() == up.shape(), "swiglu: a gate of shape {} for values of shape {}",
          to_string(gate.shape()), to_string(up.shape()));
  using silu = detail::silu_function<T>;
  return differentiable(
      map(on_packets([](auto g, auto v) { return detail::value_of<silu>(g) * v; }), gate.value(),
          up.value()),
      [x = gate.value(), y = up.value()](const tensor<T>& upstream, grad_sink<T> dgate,
                                         grad_sink<T> dup) {
        if (dgate.needed()) {
          dgate.map(on_packets([](auto u, auto g, auto v) {
                      return u * v * detail::slope_of<silu>(g);
                    }),
                    upstream, x, y);
        }
        if (dup.needed()) {
          dup.map(on_packets([](auto u, auto g) { return u * detail::value_of<silu>(g); }),
                  upstream, x);
        }
      },
      gate, up);
}

}  // namespace parx
