// cast: the same values in another type; the gradient is cast back to the type of the input.
//
// So a parameter may be stored in 16 bits and used in float, as the layers of parx::nn do with
// parameters of bfloat16 and float16.
#pragma once

#include <type_traits>

#include <parx/autograd/function.hpp>

namespace parx::inline PARX_ABI {

/// x as To, rounded to the nearest; x itself where that is its type. Each contribution to x's
/// gradient is rounded to x's type.
template <typename To, typename From>
[[nodiscard]] variable<To> cast(const variable<From>& x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else {
    if (!x.defined()) return {};
    return differentiable_of_cut(
        x.value().template cast<To>(),
        [](const tensor<To>& upstream, grad_sink<From> dx) {
          dx.add(upstream.template cast<From>());
        },
        x);
  }
}

}  // namespace parx
