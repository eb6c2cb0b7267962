// softplus, leaky_relu, elu and their kin; and those of activation.hpp for tensors.
//
// Defaults and formulas are PyTorch's. Types, bits and cut logits: see elementary.hpp.
#pragma once

#include <cmath>
#include <type_traits>

#include <parx/autograd/ops/activation.hpp>
#include <parx/autograd/ops/compare.hpp>
#include <parx/autograd/ops/detail/activations.hpp>
#include <parx/autograd/ops/detail/element_wise.hpp>
#include <parx/autograd/ops/detail/kinds.hpp>
#include <parx/autograd/ops/elementary.hpp>
#include <parx/autograd/ops/view.hpp>
#include <parx/tensor/elementary.hpp>

namespace parx::inline PARX_ABI {

// Of tensors; those of variables are in activation.hpp.

/// Of a tensor: max(0, x).
template <typename T>
[[nodiscard]] tensor<T> relu(const tensor<T>& x) {
  return detail::apply(x, [](auto v) { return v < decltype(v){} ? decltype(v){} : v; });
}
/// Of a tensor: the hyperbolic tangent.
template <typename T>
[[nodiscard]] tensor<T> tanh(const tensor<T>& x) {
  return detail::apply(x, [](auto v) { return detail::vector_tanh(v); });
}
/// Of a tensor: 1 / (1 + e^-x).
template <typename T>
[[nodiscard]] tensor<T> sigmoid(const tensor<T>& x) {
  return detail::apply(x, [](auto v) { return detail::vector_sigmoid(v); });
}
/// Of a tensor: x sigmoid(x).
template <typename T>
[[nodiscard]] tensor<T> silu(const tensor<T>& x) {
  return detail::apply(x, [](auto v) { return v * detail::vector_sigmoid(v); });
}
/// Of a tensor: x times the standard normal's distribution function at x.
template <typename T>
[[nodiscard]] tensor<T> gelu(const tensor<T>& x, gelu_form form = gelu_form::erf) {
  return gelu(variable<T>(x), form).value();
}

namespace detail {

/// right(v) where v > 0, else left(v), element by element: for values, and for derivatives.
template <typename V, typename Right, typename Left>
[[nodiscard, gnu::always_inline]] inline V by_sign(V v, Right right, Left left) noexcept {
  const V r = right(v), l = left(v);
  return v > V{} ? r : l;
}

}  // namespace detail

// X is a tensor or a variable; so is the result.

/// log(1 + exp(beta x)) / beta, and x itself where beta x > threshold.
template <detail::tensor_or_variable X>
[[nodiscard]] auto softplus(const X& x, double beta = 1, double threshold = 20) {
  return detail::of_input(
      x,
      [beta, threshold](auto v) {
        const auto b = detail::rounded_as(v, beta), limit = detail::rounded_as(v, threshold);
        const auto z = v * b;
        const auto y = detail::vector_softplus(z) / b;
        return z > limit ? v : y;
      },
      [beta, threshold](auto v) {
        const auto b = detail::rounded_as(v, beta), limit = detail::rounded_as(v, threshold);
        const auto z = v * b;
        const auto y = detail::vector_sigmoid(z);
        return z > limit ? detail::all_of<decltype(v)>(1) : y;
      });
}

/// x above 0, negative_slope x below.
template <detail::tensor_or_variable X>
[[nodiscard]] auto leaky_relu(const X& x, double negative_slope = 0.01) {
  return detail::of_input(
      x,
      [negative_slope](auto v) {
        const auto a = detail::rounded_as(v, negative_slope);
        return detail::by_sign(
            v, [](auto e) { return e; }, [a](auto e) { return e * a; });
      },
      [negative_slope](auto v) {
        const auto a = detail::all_of<decltype(v)>(detail::rounded_as(v, negative_slope));
        return v > decltype(v){} ? detail::all_of<decltype(v)>(1) : a;
      });
}

namespace detail {

/// scale x above 0, scale alpha (exp(x / width) - 1) below.
template <tensor_or_variable X>
[[nodiscard]] auto exponential_unit(const X& x, double scale, double alpha, double width) {
  return of_input(
      x,
      [scale, alpha, width](auto v) {
        const auto s = rounded_as(v, scale), a = rounded_as(v, scale * alpha);
        const auto w = rounded_as(v, 1 / width);
        return by_sign(
            v, [s](auto e) { return e * s; },
            [w, a](auto e) { return vector_expm1<decltype(e)>(e * w) * a; });
      },
      [scale, alpha, width](auto v) {
        const auto s = rounded_as(v, scale), a = rounded_as(v, scale * alpha / width);
        const auto w = rounded_as(v, 1 / width);
        return by_sign(
            v, [s](auto e) { return all_of<decltype(e)>(s); },
            [w, a](auto e) { return vector_exp<decltype(e)>(e * w) * a; });
      });
}

}  // namespace detail

/// x above 0, alpha (e^x - 1) below.
template <detail::tensor_or_variable X>
[[nodiscard]] auto elu(const X& x, double alpha = 1) {
  return detail::exponential_unit(x, 1, alpha, 1);
}
/// scale elu(x, alpha) with the constants of Klambauer et al. (arXiv 1706.02515).
template <detail::tensor_or_variable X>
[[nodiscard]] auto selu(const X& x) {
  return detail::exponential_unit(x, 1.0507009873554804934193349852946,
                                  1.6732632423543772848170429916717, 1);
}
/// x above 0, alpha (exp(x / alpha) - 1) below.
template <detail::tensor_or_variable X>
[[nodiscard]] auto celu(const X& x, double alpha = 1) {
  return detail::exponential_unit(x, 1, alpha, alpha);
}

/// x between min_val and max_val; the gradient passes strictly between.
template <detail::tensor_or_variable X>
[[nodiscard]] auto hardtanh(const X& x, double min_val = -1, double max_val = 1) {
  return detail::of_input(
      x,
      [min_val, max_val](auto v) {
        using V = decltype(v);
        const V low = detail::all_of<V>(detail::rounded_as(v, min_val));
        const V high = detail::all_of<V>(detail::rounded_as(v, max_val));
        return detail::at_most(detail::at_least(v, low), high);
      },
      [min_val, max_val](auto v) {
        using V = decltype(v);
        const V low = detail::all_of<V>(detail::rounded_as(v, min_val));
        const V high = detail::all_of<V>(detail::rounded_as(v, max_val));
        const V above = v > low ? detail::all_of<V>(1) : V{};
        return v < high ? above : V{};
      });
}
/// x between 0 and 6.
template <detail::tensor_or_variable X>
[[nodiscard]] auto relu6(const X& x) {
  return hardtanh(x, 0, 6);
}
/// (x + 3) / 6 between 0 and 1.
template <detail::tensor_or_variable X>
[[nodiscard]] auto hardsigmoid(const X& x) {
  return detail::of_input(
      x,
      [](auto v) {
        using V = decltype(v);
        const V y = (v + 3.0F) / 6.0F;
        return detail::at_most(detail::at_least(y, V{}), detail::all_of<V>(1));
      },
      [](auto v) {
        using V = decltype(v);
        const V inside = v > -3.0F ? V(detail::all_of<V>(1) / 6.0F) : V{};
        return v < 3.0F ? inside : V{};
      });
}
/// x hardsigmoid(x)
template <detail::tensor_or_variable X>
[[nodiscard]] auto hardswish(const X& x) {
  return detail::of_input(
      x,
      [](auto v) {
        using V = decltype(v);
        const V y = v + 3.0F;
        return v * detail::at_most(detail::at_least(y, V{}), detail::all_of<V>(6)) / 6.0F;
      },
      [](auto v) {
        using V = decltype(v);
        const V inside = v / 3.0F + 0.5F, one = detail::all_of<V>(1);
        const V below = v < -3.0F ? V{} : inside;
        return v > 3.0F ? one : below;
      });
}

/// log(sigmoid(x))
template <detail::tensor_or_variable X>
[[nodiscard]] auto logsigmoid(const X& x) {
  return detail::of_input(
      x, [](auto v) { return -detail::vector_softplus(-v); },
      [](auto v) { return detail::vector_sigmoid(-v); });
}
/// x tanh(softplus(x))
template <detail::tensor_or_variable X>
[[nodiscard]] auto mish(const X& x) {
  return detail::of_input(
      x, [](auto v) { return v * detail::vector_tanh(detail::vector_softplus(v)); },
      [](auto v) {
        using V = decltype(v);
        const V t = detail::vector_tanh(detail::vector_softplus(v));
        return detail::simd::fma(V(v * detail::vector_sigmoid(v)),
                                 detail::one_plus_product(V(-t), t), t);
      });
}
/// x / (1 + |x|)
template <detail::tensor_or_variable X>
[[nodiscard]] auto softsign(const X& x) {
  return detail::of_input(
      x, [](auto v) { return v / (detail::vector_abs(v) + 1.0F); },
      [](auto v) {
        const auto d = detail::vector_abs(v) + 1.0F;
        return 1.0F / (d * d);
      });
}

/// x above 0, weight x below; `weight` has one element, or one for each channel (axis 1).
template <typename T>
[[nodiscard]] variable<T> prelu(const variable<T>& x, const variable<T>& weight,
                                call_site = call_site::current()) {
  require(weight.size() == 1 || (x.rank() >= 2 && weight.shape() == shape{x.extent(1)}),
          "prelu: a weight of shape {} for an input of shape {}: one element, or one for each "
          "channel (axis 1), is needed",
          to_string(weight.shape()), to_string(x.shape()));
  shape s;
  if (weight.size() > 1) {
    s.push_back(weight.size());
    for (std::size_t axis = 2; axis < x.rank(); ++axis) s.push_back(1);
  }
  return detail::binary(
      x, reshape(weight, s), [](auto v, auto w) { return v > 0 ? v : v * w; },
      [](auto u, auto v, auto w) { return v > 0 ? u : u * w; },
      [](auto u, auto v, auto) { return v > 0 ? u * 0 : u * v; });
}

/// The first half of `axis` times the sigmoid of the second. Throws usage_error for an odd extent.
template <typename T>
[[nodiscard]] variable<T> glu(const variable<T>& x, int axis = -1,
                              call_site = call_site::current()) {
  const std::size_t extent = x.shape()[resolve_axis(axis, x.shape())];
  require(extent % 2 == 0, "glu: axis {} of an input of shape {} has no two halves", axis,
          to_string(x.shape()));
  return slice(x, axis, 0, extent / 2) * sigmoid(slice(x, axis, extent / 2, extent));
}

}  // namespace parx
